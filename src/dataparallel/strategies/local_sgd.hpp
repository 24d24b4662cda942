// SPDX-License-Identifier: Apache-2.0
// Workers train apart for a block of steps, then average: strategies that differ in how they use the mean of
// their weights.
#pragma once
#include <cstdint>
#include <memory>

#include "dataparallel/forecast.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// AdaComm's rule, see `adacomm` in local_sgd.cpp.
struct LossPeriod {
  std::uint64_t every = 1, interval = 1;
  double gamma = 0.5;
  /// The number of steps of the next blocks, where blocks have had `now` steps. Losses that are NaN count as losses
  /// that did not fall.
  std::uint64_t next(std::uint64_t now, double first_loss, double loss) const;
};

}  // namespace gradmeter::dataparallel
