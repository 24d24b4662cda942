// SPDX-License-Identifier: Apache-2.0
// Measured training steps of other people's machines, as tables in the documented columns (docs/predict.md), and the
// data sheets of devices.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  int zero = 0;              ///< stage of ZeRO; 3: FSDP too
  double step_s = 0;         ///< 0: the row's metric is no time of a step
  std::string problem = {};  ///< why there is no time of a step; empty: there is
};

/// Reads a table (RFC 4180, UTF-8). Columns may be in any order; unknown ones are ignored.
/// A cell that is no number is the row's `problem`.
/// Errors: UsageError "FILE:LINE: …": a column that is missing, a row that is too short, a quoted cell without end.
std::vector<MeasuredStep> read_measured_steps(std::string_view text, const std::string& file);

/// A device's data sheet. Rates are dense; 0: not stated.
struct Device {
  std::string name, source;
  std::vector<std::string> aliases;                        ///< lower-case letters and digits only
  double fp32 = 0, tf32 = 0, fp16 = 0, bf16 = 0, fp8 = 0;  ///< FLOP/s
  double memory_bytes = 0, memory_bytes_per_s = 0;
  double multiprocessors = 0;
  double link_bytes_per_s = 0;  ///< to the GPUs of its node, one direction

  /// The peak for a precision as tables name it ("bf16", "amp_bf16", "fp16", "amp", "fp32", "fp8").
  double peak(std::string_view precision) const;
};
std::span<const Device> devices();
/// Lower-case letters and digits only, as names are compared.
std::string plain_name(std::string_view text);
/// The device of a table's name ("A100-80GB", "h100_80gb"); null: none known.
const Device* find_device(std::string_view name);

}  // namespace gradmeter::predict
