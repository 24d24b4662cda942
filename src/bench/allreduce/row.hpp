// SPDX-License-Identifier: Apache-2.0
// Turns the measurement of a collective into a row: times, bandwidths, bytes, limit, noise.
#pragma once
#include <optional>

#include "bench/allreduce/check.hpp"
#include "bench/engine/machine_state.hpp"
#include "bench/engine/rounds.hpp"

namespace gradmeter::bench {

/// The bytes that one call has sent: by the rank that sent most (`most_by_one_rank`), by all ranks together, and
/// between nodes; and the bytes that the schedules require of all ranks (`required`). All ranks have the same numbers.
struct SentBytes {
  std::uint64_t most_by_one_rank = 0, total = 0, between_nodes = 0, required = 0;
  bool right = true;  ///< in all calls, every rank sent as many bytes as its schedule requires
};

/// Medians of the times of the exchange alone and of the matrix product alone, in a measurement of their overlap.
struct OverlapTimes {
  double exchange_s = 0, compute_s = 0;
};

struct CollectiveLimit {
  double seconds = 0;  ///< 0: no limit is known
  /// The low end of the limit's own 95 % interval, or for "wire" the limit less a tolerance. A row whose whole 95 %
  /// interval lies below `low` is mistrusted. By convention 0 if times are not compared with the limit.
  double low = 0;
  std::string name;             ///< the name of a `Traffic` (limits.hpp), or "wire"
  core::BytesPerSecond link{};  ///< the rate behind the limit "wire"; 0 for others
};

struct CollectiveMeasurement {
  const CollectivePoint& point;
  core::Blocks times;  ///< empty: the point was not timed
  UsedBlocks blocks = {};
  core::Stop stop;
  double warmup_s;
  std::size_t warmup_iterations;
  std::optional<CheckOfAllRanks> check;  ///< empty: no check was asked for
  std::optional<SentBytes> sent;         ///< empty: the algorithm is a vendor's
  std::optional<OverlapTimes> overlap;
  std::optional<allreduce::CodingTime> coding = {};  ///< times of one call's encoding and decoding; empty: no codec
  MachineNoise noise;
  bool oversubscribed;
  std::string implementation;
};

/// Fills in the row. The status is `wrong` if elements, bits or numbers of bytes are not right.
void fill_collective_row(const CollectiveMeasurement&, int ranks, core::Point&);
/// True where the row's whole 95 % interval is below CollectiveLimit::low; without an interval, where all samples are.
bool is_faster_than(const CollectiveLimit&, const core::Point&);
/// Fills in the limit of the point, once it is known. A row that is faster than the limit is mistrusted.
void fill_collective_limit(const CollectiveLimit&, core::Point&);

}  // namespace gradmeter::bench
