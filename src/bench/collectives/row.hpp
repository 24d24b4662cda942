// Turns what was measured of a collective into a row: times, bandwidths, bytes, limit, noise.
#pragma once
#include <optional>

#include "bench/collectives/check.hpp"
#include "bench/engine/machine_monitor.hpp"
#include "bench/engine/noise_sampler.hpp"
#include "bench/engine/rounds.hpp"

namespace gradmeter::bench {

/// Of one iteration, over all ranks; the same on every rank.
struct SentBytes {
  std::uint64_t most = 0, total = 0, between_nodes = 0, due = 0;
  bool right = true;  ///< every rank sent the sum of its schedule's messages
};

/// Of overlap: medians.
struct OverlapTimes {
  double exchange_s = 0, compute_s = 0;
};

struct CollectiveLimit {
  double seconds = 0;  ///< 0: none is known
  double low = 0;      ///< of its interval; 0: times are not compared with it
  std::string name;    ///< as `Traffic`, or "wire"
  core::BytesPerSecond link{};
};

struct CollectiveFindings {
  const CollectivePoint& point;
  core::Blocks times;  ///< none: it was not timed
  UsedBlocks blocks = {};
  core::Stop stop;
  double warmup_s;
  std::size_t warmup_iterations;
  std::optional<CheckFinding> check;  ///< empty: not asked for
  std::optional<SentBytes> sent;      ///< empty: a vendor's
  std::optional<OverlapTimes> overlap;
  std::optional<allreduce::CodingTime> coding = {};  ///< of a call; empty: no codec
  Noise noise;
  bool oversubscribed;
  std::string implementation;
};

/// Status wrong when elements, bits or bytes are.
void fill_collective_row(const CollectiveFindings&, int ranks, core::Point&);
/// Once the limit of the group is known. A row whose time is below it, beyond both intervals, is mistrusted.
void fill_collective_limit(const CollectiveLimit&, core::Point&);

}  // namespace gradmeter::bench
