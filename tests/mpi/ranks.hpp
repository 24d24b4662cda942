// SPDX-License-Identifier: Apache-2.0
// What the programs under real mpirun share. A test that a rank leaves early hangs its peers: EXPECT_, never ASSERT_,
// before anything collective.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "core/format.hpp"
#include "runtime/communicator.hpp"
#include "runtime/process/watchdog.hpp"
#include "runtime/threads/backoff.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::test {

/// Distinct on every rank and at every place; not exactly summable.
inline float value_at(int rank, std::size_t i) {
  return std::sin(0.37f * static_cast<float>(i % 9973) + 1.7f * static_cast<float>(rank) + 0.3f);
}
inline void fill(std::span<float> v, int rank) {
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = value_at(rank, i);
}

/// Where and how a result differs from the sum (or the mean) of what `ranks` gave; nothing when it is right. The
/// tolerance is that of so many float additions.
inline std::optional<std::string> wrong_sum(std::span<const float> result, std::span<const int> ranks, bool average) {
  const auto p = static_cast<double>(ranks.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    double exact = 0, magnitude = 0;
    for (const int r : ranks) exact += value_at(r, i), magnitude += std::fabs(value_at(r, i));
    if (average) exact /= p, magnitude /= p;
    if (!(std::fabs(result[i] - exact) <= (p + 1) * 0x1p-24 * magnitude)) {
      return fmt::format("element {} of {} is {} and should be {}", i, result.size(), result[i], exact);
    }
  }
  return std::nullopt;
}

/// Collective: does every rank hold the same bits?
inline bool same_on_all(const runtime::Communicator& c, std::span<const float> v) {
  const std::uint64_t mine = hash_of(std::as_bytes(v));
  return c.all(c.broadcast_value(mine) == mine);
}

inline runtime::SpinPolicy spin_policy_of(const runtime::Communicator& c, int threads_per_rank) {
  return runtime::spin_policy_for(c.size() * threads_per_rank, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace gradmeter::test
