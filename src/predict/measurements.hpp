// SPDX-License-Identifier: Apache-2.0
// Measured training steps of other people's machines, as tables in the documented columns (docs/predict.md).
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "predict/data_exchange.hpp"

namespace gradmeter::predict {

/// One row: what was trained, how it was split over GPUs, and how long a step took. Counts are 0 where the table does
/// not state them.
struct MeasuredStep {
  std::string id, system, gpu, model, precision, recompute, strategy, data, note;
  std::string quantile = {};  ///< "p50", where the time is a quantile of steps; empty: a mean or a median
  std::size_t gpus_per_node = 0, nodes = 0, gpus = 0;
  std::size_t layers = 0, hidden = 0, heads = 0, sequence = 0, vocabulary = 0;
  double parameters = 0;
  std::size_t global_batch = 0, micro_batch = 0;  ///< samples (sequences)
  std::size_t data_parallel = 1, tensor = 1, pipeline = 1, context = 1, expert = 1, virtual_stages = 1;
  int zero = 0;                       ///< stage of ZeRO; 3: FSDP too
  std::size_t kv_heads = 0, ffn = 0;  ///< 0: the network's name says them, or `heads` and 4 · hidden
  bool is_gated = false;              ///< the feed-forward part has a gate; counts where ffn is given
  bool is_sequence_parallel = false;  ///< ranks that split a layer split the loops between its products too
  std::string attention = {};         ///< "flash", "plain"; empty: by device and software
  double gradient_bits = 0;           ///< that travel for each element of a gradient; 0: as its precision has them
  double coding_passes = 0;           ///< times that encoding and decoding go over an fp32 gradient in memory
  ExchangeChoice exchange = {};       ///< of the data-parallel ranks
  double step_s = 0;                  ///< 0: the row's metric is no time of a step
  std::string problem = {};           ///< why there is no time of a step; empty: there is
};

/// Reads a table (core/csv.hpp). Columns may be in any order; unknown ones are ignored. A cell that is no number is the
/// row's `problem`.
/// Errors: UsageError "FILE:LINE: …": a column that is missing, a row that is too short or too long, a quoted cell
/// without end.
std::vector<MeasuredStep> read_measured_steps(std::string_view text, const std::string& file);
/// Lower-case letters and digits only, as names are compared.
std::string plain_name(std::string_view text);

}  // namespace gradmeter::predict
