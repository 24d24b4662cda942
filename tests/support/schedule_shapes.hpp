// SPDX-License-Identifier: Apache-2.0
// Where the contracts of schedules and plans are tested.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "allreduce/registry.hpp"

namespace gradmeter::test {

inline constexpr std::array all_goals{allreduce::CollectiveKind::all_reduce, allreduce::CollectiveKind::reduce_scatter,
                                      allreduce::CollectiveKind::all_gather, allreduce::CollectiveKind::broadcast,
                                      allreduce::CollectiveKind::all_to_all, allreduce::CollectiveKind::send_receive};

/// Every row with a schedule as it stands, and the parameters that change its course.
inline std::vector<std::string> scheduled_algorithms() {
  std::vector<std::string> names;
  for (const auto& a : allreduce::algorithms()) {
    if (a.backend == allreduce::Backend::schedule) names.emplace_back(a.name);
  }
  for (const char* other : {"bcube:base=2", "bcube:base=3", "torus2d:rows=1", "torus2d:rows=2", "torus2d:rows=8"}) {
    names.emplace_back(other);
  }
  return names;
}

/// One rank per node; and where nodes matter to the algorithm, every number of ranks per node up to 64 that divides p.
inline std::vector<allreduce::RankShape> shapes_of(const allreduce::AlgorithmChoice& algorithm, std::uint32_t p) {
  std::vector<allreduce::RankShape> shapes{{p, 1}};
  const bool nodes_matter = algorithm.refusal({p, 0}) != algorithm.refusal({p, 1});
  for (std::uint32_t g = 2; nodes_matter && g <= p && g <= 64; ++g) {
    if (p % g == 0) shapes.push_back({p, g});
  }
  return shapes;
}

/// 0, the middle and the last rank where there is a root; else only 0.
inline std::vector<std::uint32_t> roots_of(allreduce::CollectiveKind collective_kind, std::uint32_t p) {
  if (collective_kind != allreduce::CollectiveKind::broadcast || p == 1) return {0};
  return {0, p / 2, p - 1};
}

}  // namespace gradmeter::test
