// SPDX-License-Identifier: Apache-2.0
// The evaluation weights of a moment in virtual time, put together from what the ranks hold.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "dataparallel/strategy.hpp"

namespace gradmeter::test {

/// by_rank: what `Strategy::held_weights` gave. Empty where the strategy's are not known without communication.
inline std::vector<float> mean_of_held(std::span<const std::vector<dataparallel::WeightsInPlace>> by_rank,
                                       std::size_t elements) {
  std::vector<double> sums(elements, 0.0), holders(elements, 0.0);
  for (const auto& parts : by_rank) {
    for (const auto& part : parts) {
      for (std::size_t i = 0; i < part.values.size(); ++i) {
        sums[part.first + i] += double(part.values[i]);
        holders[part.first + i] += 1;
      }
    }
  }
  std::vector<float> means(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    if (holders[i] == 0) return {};
    means[i] = static_cast<float>(sums[i] / holders[i]);
  }
  return means;
}

}  // namespace gradmeter::test
