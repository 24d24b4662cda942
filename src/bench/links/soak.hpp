// One point of `gradmeter links`, repeated for hours: what drifts, what is disturbed, when and on which host.
#pragma once
#include "bench/engine/session.hpp"
#include "bench/engine/sweep.hpp"
#include "bench/links/plan.hpp"
#include "core/units.hpp"

namespace gradmeter::bench {

struct SoakOptions {
  LinkFactors factors;  ///< one pattern, one-way or both-ways, and one size
  core::Seconds duration{0};
};

/// How long an interval is: a soak has at most 600 of them and 20,000 rows, and none is shorter than a quarter of a
/// second.
core::Seconds soak_interval(core::Seconds duration, int ranks);

/// Collective over the world, of two ranks or more. Passes of the tournament follow each other until the time is over;
/// every pair exchanges two windows each way. When an interval's time is over and its pass is complete, so that each
/// rank has met every other equally often, a row for each rank goes to the listener: its windows, sent and received, of
/// that interval. Messages are checked as in run_links.
/// Gives the number of wrong rows, on every rank. Errors: Interrupted; rows of complete intervals have gone out by
/// then.
std::size_t run_soak(Session&, const SoakOptions&, const RowListener&);

}  // namespace gradmeter::bench
