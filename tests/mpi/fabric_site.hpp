// SPDX-License-Identifier: Apache-2.0
// A fabric over all ranks with the memory that its tests need.
#pragma once
#include <bit>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "mpi/ranks.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::test {

// Elements. Scratch grows with the longest call, so only the tests that need it ask for it.
inline constexpr std::size_t usual = 20'011, longest = 300'007;

inline std::string text(dataparallel::TransportKind t) {
  return t == dataparallel::TransportKind::shm ? "shm" : t == dataparallel::TransportKind::mpi ? "mpi" : "auto";
}
inline std::string text(dataparallel::ProgressMode p) {
  return p == dataparallel::ProgressMode::thread ? "thread" : "on_wait";
}

/// A fabric over all ranks, and what it needs.
struct Site {
  Site(std::string_view algorithm, dataparallel::TransportKind transport, dataparallel::ProgressMode progress,
       std::size_t longest_call = usual)
      : fabric(world,
               {.exchange = {.max_bytes = longest_call * sizeof(double),
                             .algorithm = algorithm.empty() ? nullptr : allreduce::find_algorithm(algorithm)},
                .transport = transport,
                .progress = progress,
                .spin_policy = spin_policy_of(world, progress == dataparallel::ProgressMode::thread ? 2 : 1),
                .memory_bytes = std::size_t{4} << 20},
               activity) {}
  int rank() const { return world.rank(); }
  int size() const { return world.size(); }
  /// Rank-distinct values in memory that every transport can move.
  std::span<float> values(std::size_t n, int as_rank) {
    const auto v = fabric.arena().take_of<float>(n);
    fill(v, as_rank);
    return v;
  }
  std::span<float> values(std::size_t n) { return values(n, rank()); }
  std::vector<int> everyone() const {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  const runtime::Communicator world = runtime::MpiSession::world();
  runtime::Activity activity;
  dataparallel::RankFabric fabric;
};

/// Payload of a whole all-reduce of n floats by all ranks together; null for a vendor's.
inline std::optional<std::uint64_t> bytes_of_all(std::string_view algorithm, int ranks, std::size_t n) {
  const auto p = static_cast<std::uint64_t>(ranks);
  if (algorithm == "ring") return 2 * (p - 1) * n * sizeof(float);
  if (algorithm != "recursive-doubling") return std::nullopt;
  const std::uint64_t power = std::bit_floor(p), extra = p - power;
  return (2 * extra + power * static_cast<std::uint64_t>(std::countr_zero(power))) * n * sizeof(float);
}

}  // namespace gradmeter::test
