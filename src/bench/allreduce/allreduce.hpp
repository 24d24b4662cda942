// SPDX-License-Identifier: Apache-2.0
// The collective sweep: every algorithm is checked, timed in turn with the vendor's, and compared with the lower bound
// of its time (limits.hpp).
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/allreduce/plan.hpp"
#include "bench/engine/rounds.hpp"
#include "bench/engine/sweep.hpp"
#include "core/table.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

/// One point's times by rank. calls: times of its calls, including waits for other ranks. alone: times of LeastWork
/// (limits.hpp), which has the least memory traffic that the call needs and waits for no other rank; empty if it was
/// not timed.
struct PointRankTimes {
  std::span<const OwnTime> calls, alone;
};
using RanksListener = std::function<void(const core::Point&, const PointRankTimes&)>;

/// Receives the sweep's points. Called on rank 0 only.
struct CollectiveListener {
  RowListener rows;
  /// Called for each point that was timed, with its times by rank; may be null.
  RanksListener ranks = {};
};

/// Collective over the session's world. `finished`: points of earlier runs by Factors::key(); the same on every rank.
/// Returns the number of wrong points. Errors: Interrupted.
std::size_t run_collectives(Session&, const NodeMap&, const CollectiveOptions&, const FinishedRows& finished,
                            const CollectiveListener&);

/// Estimates what each point needs, for --dry-run, without any ranks.
std::vector<Estimated<CollectivePoint>> estimate_collectives(const CollectiveOptions&, const NodeMap&);

/// The tables of the points. Factors that have no column (collective, element type, operation, kind of buffers, cadence
/// and others) stand above a table instead: points that differ in one of them are in different tables. Tables are in
/// the order of their first points, and rows by size. A row has the times out of place and in place, if both were
/// measured; in tables with overlap, each placement has a row of its own. The reason why a point was not measured
/// stands in its row or below the table.
std::string collective_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// Explains the columns; to be printed below the last table.
std::string collective_legend(report::Legend);

const report::CsvColumns& collective_csv();
/// A table of the fastest algorithm and the vendor's, for each size and placement at which several algorithms were
/// measured (analysis::FindingKind::fastest_exchange). Empty where there is no such size.
std::string collective_winners(std::span<const core::Point>, std::size_t width = core::any_width);

/// A table that compares each point with a codec to the point without a codec whose other factors are equal; empty if
/// there are no such pairs.
std::string codec_comparison(std::span<const core::Point>, std::size_t width = core::any_width);
std::string codec_comparison_legend();

}  // namespace gradmeter::bench
