// The collective sweep: every algorithm is checked, timed in turn with the vendor's, and compared with the limit.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/collectives/turns.hpp"
#include "bench/engine/sweep.hpp"

namespace gradmeter::bench {

struct CollectiveOptions {
  CollectiveFactors factors;
  core::StoppingRule rule;
  std::size_t exact_samples = 0;                 ///< -n; 0: as many as it takes
  std::optional<std::size_t> exact_warmup = {};  ///< -w
  std::optional<core::Seconds> time_budget;      ///< for all points together, shared out evenly
  bool check = true;
  core::Injection injection;
  std::uint64_t seed = 1;
};

/// Receives the sweep's points. Called on rank 0 only.
struct CollectiveListener {
  RowListener rows;
  /// By rank, of a point that was timed; may be null.
  RanksListener ranks = {};
};

/// Collective over the session's world. `finished`: points of earlier runs by Factors::key(); the same on every rank.
/// Gives the number of wrong points. Errors: Interrupted.
std::size_t run_collectives(Session&, const NodeMap&, const CollectiveOptions&, const FinishedRows& finished,
                            const CollectiveListener&);

/// For --dry-run. Needs no ranks.
struct CollectiveEstimate {
  CollectivePoint point;
  std::size_t bytes_per_rank = 0;  ///< with all that is resident at once with it
  double seconds_at_most = 0;
};
std::vector<CollectiveEstimate> estimate_collectives(const CollectiveOptions&, const NodeMap&);

}  // namespace gradmeter::bench
