// SPDX-License-Identifier: Apache-2.0
// The length of blocks in the strategy `adacomm` (local_sgd.cpp), in which workers train independently for a block of
// steps and then average their weights.
#pragma once
#include <cstdint>
#include <memory>

#include "dataparallel/forecast.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// The rule of AdaComm, by which blocks get shorter as the loss falls. every: the number of steps of the first block.
/// interval: the fewest steps from one choice of the length to the next. gamma: the factor of the length if the loss
/// alone would not shorten it.
struct AdaCommRule {
  std::uint64_t every = 1, interval = 1;
  double gamma = 0.5;
  /// The number of steps of the next blocks, after blocks of `now` steps: ceil(√(loss/first_loss)·every) if that is
  /// less than `now`, else gamma·now; at least 1. first_loss: the mean loss of step 1. loss: the mean loss since the
  /// length was last chosen; NaN counts as a loss that did not fall.
  std::uint64_t next_block_steps(std::uint64_t now, double first_loss, double loss) const;
};

}  // namespace gradmeter::dataparallel
