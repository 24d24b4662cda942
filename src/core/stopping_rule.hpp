// SPDX-License-Identifier: Apache-2.0
// The rule that says when a point has been measured enough.
#pragma once
#include <cstddef>

#include "core/statistics.hpp"
#include "core/units.hpp"

namespace gradmeter::core {

/// The fewest blocks to measure: 3 if a sample takes over 5 s, since a 95 % interval is then not worth the wait; else
/// `fewest_blocks`.
std::size_t fewest_blocks_of(Seconds sample);

/// Says when sampling ends. It goes on until there are at least `min_samples` samples in `min_blocks` blocks, spread
/// over at least `min_time`, and half the width of the 95 % interval is under `relative_half_width` of the median. It
/// ends earlier at `max_samples`, or when `budget` is spent and there are at least `fewest_blocks_of` blocks.
struct StoppingRule {
  std::size_t min_samples = 10;
  std::size_t min_blocks = 8;
  Seconds min_time{0.3};  ///< from the first block's begin to the last one's end
  std::size_t max_samples = 100000;
  double relative_half_width = 0.025;
  Seconds budget{5};
  /// Returns Stop::none while sampling should go on. `spread` is compared with `min_time`, `spent` with `budget`.
  Stop decide(const Blocks&, Seconds spread, Seconds spent) const;
};

}  // namespace gradmeter::core
