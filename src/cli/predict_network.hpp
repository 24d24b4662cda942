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
  predict::MeasuredStep step;
  core::Machine machine;
  std::string link = {};      ///< as the user gave it; empty: nodes are connected as they usually are
  std::string codec = {};     ///< canonical; empty: none
  std::string strategy = {};  ///< canonical; empty: synchronous, with the ZeRO stage of `step`
};

/// A row of the table: the step asked about, and its prediction or the reason why there is none.
struct NetworkRow {
  AskedStep asked;
  std::optional<predict::Prediction> p;
  std::string reason;
  std::optional<double> efficiency = {};
  double price_per_hour = 0;  ///< the price of one rank [USD]; 0: not given

  double ranks() const { return static_cast<double>(asked.step.gpus); }
  double batch() const { return static_cast<double>(asked.step.global_batch); }
  double samples_per_s() const { return batch() / p->seconds; }
  double peak() const { return asked.machine.device->peak(asked.step.precision); }
  std::optional<double> utilisation() const {
    if (!(p->flops > 0) || !(peak() > 0)) return std::nullopt;
    return p->flops / p->seconds / ranks() / peak();
  }
  // The parts of the step's time, named as in the output of `gradmeter scale`.
  double wire_s() const { return p->parts.tensor_exchange + p->parts.data_exchange; }
  double wait_s() const { return p->parts.pipeline_wait; }
  double other_s() const { return p->parts.update + p->parts.fixed; }
  std::string bound_by() const;
  std::optional<double> price_of_a_million() const;  ///< [USD] for a million samples
};

/// Sets the step's codec, its bits for each gradient, and the time of encoding and decoding, counted in passes over
/// memory. This count follows from the machine's rates for the codec. Without such rates, encoding and decoding each
/// count as one read of their input and one write of their output. Errors: UsageError.
void take_codec(const std::string& name, AskedStep&);
/// Errors: UsageError for a strategy that is neither sync, sharded, independent, model-averaging nor bmuf.
void take_strategy(const std::string& name, AskedStep&);
/// Errors: UsageError for an algorithm that has no closed form.
void take_algorithm(const std::string& flag, const std::string& name, AskedStep&);
/// Errors: UsageError.
void take_bucket(const std::string& flag, const std::string& size, AskedStep&);
/// Errors: UsageError for choices that have no meaning together.
void check_exchange(const AskedStep&);

NetworkRow predicted(const AskedStep&, const predict::Calibration&);

/// The changes of --what-if, and the factor by which each changes the samples/s on each number of ranks.
class WhatIf {
 public:
  /// The rows must outlive this object. Errors: UsageError.
  WhatIf(const Flags&, const std::vector<NetworkRow>&, const predict::Calibration&);
  void print(std::size_t width) const;
  void print_json() const;

 private:
  /// One change of one thing: "link=400GbE".
  struct Alternative {
    std::string key, value;
  };
  struct Effect {
    Alternative change;
    std::vector<std::optional<double>>
        ratios;                   ///< samples/s with the change ÷ samples/s without, by row; empty: not predicted
    std::string reason;           ///< why the first empty ratio is empty
    std::optional<double> price;  ///< list price of the device with the change ÷ the price without
  };
  static std::vector<Alternative> read_changes(const Flags&);
  static AskedStep changed(AskedStep, const Alternative&);
  std::string where_it_pays(const Effect&) const;

  const std::vector<NetworkRow>& rows_;
  std::vector<Effect> effects_;
};

/// Largest number of samples, layers and the like that a flag may give.
inline constexpr std::uint64_t most_count = 1u << 24;
inline core::Json or_null(std::optional<double> v) { return v ? core::Json(*v) : core::Json(nullptr); }

}  // namespace gradmeter::cli
