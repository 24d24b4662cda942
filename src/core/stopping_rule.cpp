// SPDX-License-Identifier: Apache-2.0
#include "core/stopping_rule.hpp"

namespace gradmeter::core {

std::size_t fewest_blocks_of(Seconds sample) { return sample.value > 5 ? 3 : fewest_blocks; }

Stop StoppingRule::decide(const Blocks& blocks, Seconds time_span, Seconds spent) const {
  const std::size_t n = blocks.samples().size();
  if (n == 0) return Stop::none;
  if (n >= min_samples && blocks.count() >= min_blocks && time_span >= min_time &&
      summarise(blocks.medians()).relative_half_width() < relative_half_width) {
    return Stop::interval;
  }
  if (n >= max_samples) return Stop::samples;
  const Seconds sample{summarise(blocks.medians()).median};
  if (blocks.count() >= fewest_blocks_of(sample) && spent >= budget) return Stop::budget;
  return Stop::none;
}

}  // namespace gradmeter::core
