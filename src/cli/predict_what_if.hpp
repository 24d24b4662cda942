// SPDX-License-Identifier: Apache-2.0
// `predict --what-if`: what other links, precisions, exchanges or machines would change about the steps that
// `predict --model` predicts.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/predict.hpp"
#include "cli/predict_model.hpp"

namespace gradmeter::cli {

/// The changes of --what-if, and the factor by which each changes the samples/s on each number of ranks.
class WhatIf {
 public:
  /// The rows must outlive this object. Errors: UsageError.
  WhatIf(const Flags&, const std::vector<PredictedRow>&, const predict::Calibration&);
  void print(std::size_t width) const;
  void print_json() const;

 private:
  /// One change, such as "link=400GbE".
  struct Change {
    std::string key, value;
  };
  struct Effect {
    Change change;
    /// By row: samples/s with the change ÷ samples/s without; empty: not predicted.
    std::vector<std::optional<double>> ratios;
    std::string reason;                 ///< why the first empty ratio is empty
    std::optional<double> price_ratio;  ///< list price of the device with the change ÷ the price without
  };
  static std::vector<Change> read_changes(const Flags&);
  static AskedStep changed(AskedStep, const Change&);
  std::string where_it_pays(const Effect&) const;

  const std::vector<PredictedRow>& rows_;
  std::vector<Effect> effects_;
};

}  // namespace gradmeter::cli
