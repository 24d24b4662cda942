// SPDX-License-Identifier: Apache-2.0
// Makes the points of `gradmeter links` from its factors.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/engine/node_map.hpp"
#include "bench/engine/session.hpp"
#include "bench/engine/sweep.hpp"
#include "core/injection.hpp"
#include "core/result.hpp"
#include "core/stopping_rule.hpp"
#include "core/table.hpp"
#include "core/units.hpp"
#include "report/cells.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::bench {

/// The pairs of ranks that send to each other at the same time.
///   one-way           every pair, first one way, then the other: latency and bandwidth of each link
///   both-ways         every pair, both ways at once (OSU's osu_bibw)
///   multi-pair        1, 2, 4 … ranks of the first half to as many of the second (osu_mbw_mr)
///   bisection         each rank of the first half and its partner in the second, both ways at once
///   bisection-random  as bisection, with halves and pairs drawn anew for every window
///                     (Hoefler, Schneider & Lumsdaine, CLUSTER 2008)
///   groups            the ranks of each group, in a ring; slow groups are halved until slow ranks are found
///                     (group_search.hpp), for worlds with too many pairs to measure each
enum class LinkPattern : std::uint8_t { one_way, both_ways, multi_pair, bisection, bisection_random, groups };
std::string_view name(LinkPattern);
std::vector<LinkPattern> link_patterns();

struct LinkFactors {
  std::vector<LinkPattern> patterns{LinkPattern::one_way, LinkPattern::bisection};
  std::vector<std::size_t> sizes{std::size_t{128} << 10};  ///< bytes of a message
  std::size_t outstanding = 16;                            ///< number of messages of a window, sent at once
  /// The most pairs that exchange at once in a round of the tournament (tournament.hpp); by convention 0: all.
  int pairs_at_once = 0;
  runtime::TransportKind transport = runtime::TransportKind::mpi;
  std::string interconnect;  ///< the user's label of the network; may be empty
  core::Injection injection;
};

/// The points of one pattern and size, which are measured in turn: one for each link, or for each number of pairs.
struct LinkGroup {
  LinkPattern pattern;
  std::size_t size_bytes;
};
std::vector<LinkGroup> link_groups(const LinkFactors&);

struct LinkPoint {
  LinkPattern pattern;
  std::size_t size_bytes;
  int from = -1, to = -1;  ///< the ranks of one link, in both-ways from < to; -1: the point is not one link
  int pairs = 1;           ///< number of pairs that exchange at the same time; by convention 0 for groups
};
/// The points of one group on `ranks` ranks. Cost: O(ranks²) for links.
std::vector<LinkPoint> plan_links(const LinkFactors&, const LinkGroup&, int ranks);

core::Factors to_factors(const LinkFactors&, const LinkPoint&, const NodeMap&);

// The experiment of `gradmeter links`: latency and bandwidth of every link, many pairs at once, bisections.

struct LinkOptions {
  LinkFactors factors;
  core::StoppingRule rule;                ///< decides when the time of a window is known well enough
  std::optional<TimeBudget> time_budget;  ///< for all points together
};

/// The number of all points. Cost: O(ranks²).
std::size_t count_links(const LinkFactors&, int ranks);

/// Runs the experiment. Collective over the world, of two ranks or more. `finished`: the same on every rank. Returns
/// the number of wrong points, on every rank.
/// Cost: for the links of one pattern and size at most 20 s or their part of the time budget, but at least 6 passes;
/// for each number of pairs 2 s. Memory of rank 0: all samples, 8 bytes each. Errors: Interrupted.
std::size_t run_links(Session&, const LinkOptions&, const FinishedRows& finished, const RowListener&);

// Repeats one point of `gradmeter links` for hours, to show what drifts, what is disturbed, when and on which host.

struct SoakOptions {
  LinkFactors factors;  ///< one pattern, one-way or both-ways, and one size
  core::Seconds duration{0};
};

/// The length of a soak's intervals, which are the spans of time that its rows describe. A soak has at most 600
/// intervals and 20,000 rows, and no interval is shorter than a quarter of a second.
core::Seconds soak_interval(core::Seconds duration, int ranks);

/// Runs the soak. Collective over the world, of two ranks or more. Passes of the tournament follow each other until the
/// time is over; in each pass every pair exchanges two windows each way. An interval ends with the pass in which its
/// time runs out, so within an interval each rank meets every other equally often; the last interval ends with the
/// soak. At the end of each interval the listener gets a row for each rank, with the windows that it sent and received
/// in the interval. Messages are checked by LinkMessages (messages.hpp).
/// Returns the number of wrong rows, on every rank. Errors: Interrupted, after the rows of complete intervals were
/// given to the listener.
std::size_t run_soak(Session&, const SoakOptions&, const RowListener&);

/// A text for each pattern, size and transport: matrices over the ranks, with links that stand out listed below them,
/// or a table by the number of pairs at once. A matrix that is too wide is replaced by its quartiles.
std::string link_tables(std::span<const core::Point>, std::size_t width = core::any_width);
std::string link_legend(report::Legend);
const report::CsvColumns& link_csv();
/// One table for each soak: a line for each rank, and below it disturbances, drift and outliers.
std::string soak_tables(std::span<const core::Point>, std::size_t width = core::any_width);
std::string soak_legend(report::Legend);
const report::CsvColumns& soak_csv();

}  // namespace gradmeter::bench
