// How long calls take by rank, and which rank is the slowest.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "core/statistics.hpp"
#include "runtime/mpi.hpp"

namespace gradmeter::bench {

/// Median of one rank's own times and its 95 % interval [s]; without samples enough for one, from 0 to infinity.
struct OwnTime {
  double median = 0, low = 0, high = 0;
};
/// By rank. Collective over `c`; `mine` may be none on some. Cost: 24 bytes a rank.
std::vector<OwnTime> own_times_by_rank(const runtime::Communicator& c, const core::Blocks& mine);

/// The rank whose interval lies above all others'; empty: none stands out.
std::optional<int> standing_out(std::span<const OwnTime>);

}  // namespace gradmeter::bench
