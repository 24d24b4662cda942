// SPDX-License-Identifier: Apache-2.0
// The code that `predict --model` and its what-ifs share: the step that a user asks about, functions that set its
// codec, strategy, algorithm and bucket, and the step's row in the table.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/predict.hpp"
#include "core/machine.hpp"

namespace gradmeter::cli {

/// A step that is to be predicted, and the machine that it runs on.
struct AskedStep {
  predict::TrainingStep step;
  core::Machine machine;
  std::string link = {};      ///< the link between nodes, as the user named it; empty: the machine's usual one
  std::string codec = {};     ///< canonical name; empty: no codec
  std::string strategy = {};  ///< canonical name; empty: synchronous, with the ZeRO stage of `step`
};

/// A row of the table: the step that a user asks about, and its prediction or the reason why there is none. All
/// functions but ranks(), batch() and peak() need a prediction.
struct PredictedRow {
  AskedStep asked;
  std::optional<predict::Prediction> prediction;
  std::string reason;
  /// samples/s of a rank, divided by those of one rank that computes alone; empty: one of them is not predicted, or
  /// both are, but on different bases (predict::Basis).
  std::optional<double> efficiency = {};
  double price_per_hour = 0;  ///< the price of one rank [USD]; 0: not given

  double ranks() const { return static_cast<double>(asked.step.gpus); }
  double batch() const { return static_cast<double>(asked.step.global_batch); }
  double samples_per_s() const { return batch() / prediction->seconds; }
  /// The peak rate of one device in the step's precision [FLOP/s]; 0: not known.
  double peak() const { return asked.machine.device->peak(asked.step.precision); }
  /// The FLOP/s of a device, divided by its peak rate; empty: one of them is not known.
  std::optional<double> utilisation() const {
    if (!(prediction->flops > 0) || !(peak() > 0)) return std::nullopt;
    return prediction->flops / prediction->seconds / ranks() / peak();
  }
  // The parts of the step's time, named as in the output of `gradmeter scale`.
  double wire_s() const { return prediction->parts.tensor_exchange + prediction->parts.data_exchange; }
  double wait_s() const { return prediction->parts.pipeline_wait; }
  double other_s() const { return prediction->parts.update + prediction->parts.fixed; }
  /// "compute" if nearly no time is lost, else the largest of wire, wait and other.
  std::string bound_by() const;
  std::optional<double> price_of_a_million() const;  ///< [USD] for a million samples
};

/// Sets the step's codec, its bits for each gradient element, and the time of encoding and decoding, counted in passes
/// over the fp32 gradients in memory. The count follows from the machine's measured rates for the codec. Without such
/// rates, encoding and decoding each count as one read of their input and one write of their output. Errors:
/// UsageError.
void set_codec(const std::string& name, AskedStep&);
/// Sets the strategy, and with it the ZeRO stage and how often ranks exchange. Errors: UsageError for a strategy that
/// is neither sync, sharded, independent, model-averaging nor bmuf.
void set_strategy(const std::string& name, AskedStep&);
/// Sets the algorithm of all-reduces; `flag` is named in errors. Errors: UsageError for an algorithm that has no closed
/// form.
void set_algorithm(const std::string& flag, const std::string& name, AskedStep&);
/// Sets the bytes of gradients that are sent together. Errors: UsageError.
void set_bucket(const std::string& flag, const std::string& size, AskedStep&);
/// Errors: UsageError if strategy, ZeRO stage, algorithm, bucket and codec do not fit together.
void check_exchange(const AskedStep&);

/// The row of a step: its prediction, or the reason why there is none (it needs too much memory, for one).
PredictedRow predicted(const AskedStep&, const predict::Calibration&);

/// Largest number of samples, layers and the like that a flag may give.
inline constexpr std::uint64_t most_count = 1u << 24;
inline core::Json or_null(std::optional<double> v) { return v ? core::Json(*v) : core::Json(nullptr); }

}  // namespace gradmeter::cli
