// SPDX-License-Identifier: Apache-2.0
// The length of blocks in a strategy of local_sgd.cpp, whose workers train independently for a block of steps and then
// average their weights.
#pragma once
#include <cstdint>
#include <memory>

#include "dataparallel/forecast.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// The rule of AdaComm, which decides the length of blocks. Its parameters are those of the strategy `adacomm`, which
/// local_sgd.cpp explains.
struct LossPeriod {
  std::uint64_t every = 1, interval = 1;
  double gamma = 0.5;
  /// The number of steps of the next blocks, after blocks of `now` steps. A loss of NaN counts as one that did not
  /// fall.
  std::uint64_t next(std::uint64_t now, double first_loss, double loss) const;
};

}  // namespace gradmeter::dataparallel
