// The experiment of `gradmeter links`: latency and bandwidth of every link, many pairs at once, bisections.
#pragma once
#include <optional>

#include "bench/engine/session.hpp"
#include "bench/engine/sweep.hpp"
#include "bench/links/plan.hpp"
#include "core/statistics.hpp"

namespace gradmeter::bench {

struct LinkOptions {
  LinkFactors factors;
  core::StoppingRule rule;                   ///< of a window's time
  std::optional<core::Seconds> time_budget;  ///< for all points together
};

/// All points in the order of their rows. Cost: O(ranks²).
std::size_t count_links(const LinkFactors&, int ranks);

/// Collective over the world, of two ranks or more. `finished`: the same on every rank. Gives the number of wrong
/// points, on every rank.
/// Cost: for the links of one size at most 20 s or what of the time budget is theirs, but 6 passes at least; 2 s for
/// each number of pairs. Memory of rank 0: all samples, 8 bytes each. Errors: Interrupted.
std::size_t run_links(Session&, const LinkOptions&, const FinishedRows& finished, const RowListener&);

}  // namespace gradmeter::bench
