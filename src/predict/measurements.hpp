// SPDX-License-Identifier: Apache-2.0
// Measured training steps, mostly of other people's machines, read from tables. docs/predict.md has their columns.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "predict/data_exchange.hpp"

namespace gradmeter::predict {

/// One row: what was trained, how it was split over GPUs, and how long a step took. Where the table states no value, a
/// count is 0, but a degree of parallelism is 1.
struct TrainingStep {
  std::string id, system, gpu, model, precision, recompute, strategy, data, note;
  std::string quantile = {};  ///< "p95" if the time is this quantile of steps; empty: a mean or a median
  std::size_t gpus_per_node = 0, nodes = 0, gpus = 0;
  std::size_t layers = 0, hidden = 0, heads = 0, sequence = 0, vocabulary = 0;
  double parameters = 0;
  std::size_t global_batch = 0, micro_batch = 0;  ///< samples (sequences)
  std::size_t data_parallel = 1, tensor = 1, pipeline = 1, context = 1, expert = 1, virtual_stages = 1;
  int zero_stage = 0;                 ///< stage of ZeRO; FSDP counts as 3
  std::size_t kv_heads = 0, ffn = 0;  ///< 0: as the network's name implies, else `heads` and 4 · `hidden`
  bool is_gated = false;              ///< whether the feed-forward part has a gate; used only if `ffn` is given
  bool is_sequence_parallel = false;  ///< whether tensor ranks also split the loops between a layer's products
  std::string attention = {};         ///< "flash" or "plain"; empty: what the device and the software imply
  double gradient_bits = 0;           ///< bits exchanged for each element of a gradient; 0: those of its precision
  double coding_passes = 0;           ///< passes of encoding and decoding over an fp32 gradient in memory
  ExchangeChoice exchange = {};       ///< how the data-parallel ranks exchange
  double step_s = 0;                  ///< time of a step [s]; 0: there is none, for the reason in `problem`
  std::string problem = {};           ///< why there is no time of a step; empty: there is one
  /// The reason why the step is not predicted: a cell that says what was trained cannot be read; empty: all can.
  std::string unread_reason = {};
};

/// True if both names mean one device of data/machines, or neither is there and they are equal.
bool is_same_device(std::string_view a, std::string_view b);
/// True if the time is that of a usual step: a mean or a median, not another quantile.
bool is_usual_step(const TrainingStep&);

/// The GPUs of one replica of the network: the product of the tensor, pipeline and context degrees, or the largest
/// std::size_t if the product is larger.
std::size_t replica_gpus(const TrainingStep&);

/// The samples of a step for each GPU; `gpus` must be above 0.
double batch_per_gpu(const TrainingStep&);

/// Reads a table (core/csv.hpp). Columns may be in any order; unknown ones are ignored. If a cell that must be a number
/// is not one, the row's `problem` says so.
/// Errors: UsageError "FILE:LINE: …" for a missing column, a row that is too short or too long, or a quoted cell
/// without end.
std::vector<TrainingStep> read_measured_steps(std::string_view text, const std::string& file);
/// The text's letters and digits in lower case, without all other characters. Names are compared in this form.
std::string plain_name(std::string_view text);

}  // namespace gradmeter::predict
