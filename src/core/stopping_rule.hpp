// SPDX-License-Identifier: Apache-2.0
// The rule by which the sampling of a point ends.
#pragma once
#include <cstddef>

#include "core/statistics.hpp"
#include "core/units.hpp"

namespace gradmeter::core {

/// The fewest blocks to measure, if one sample takes the time `sample`: 3 if that is above 5 s, since enough blocks for
/// a 95 % interval would take too long; else `fewest_blocks`.
std::size_t fewest_blocks_of(Seconds sample);

/// Says when sampling ends. Sampling ends when there are at least `min_samples` samples in at least `min_blocks`
/// blocks, spread over at least `min_time`, and half the width of the 95 % interval of the blocks' medians is less than
/// `relative_half_width` of their median. It ends earlier after `max_samples` samples, or when the time `budget` is
/// spent and there are at least `fewest_blocks_of` blocks.
struct StoppingRule {
  std::size_t min_samples = 10;
  std::size_t min_blocks = 8;
  Seconds min_time{0.3};  ///< from the first block's begin to the last one's end
  std::size_t max_samples = 100000;
  double relative_half_width = 0.025;
  Seconds budget{5};
  /// Returns Stop::none while sampling should go on. `time_span`: time from the first block's begin to the last one's
  /// end; `spent`: time spent on the point, both for comparison with the members above.
  Stop decide(const Blocks&, Seconds time_span, Seconds spent) const;
};

}  // namespace gradmeter::core
