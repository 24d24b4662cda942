// SPDX-License-Identifier: Apache-2.0
// --tune-auto: measures which algorithm is fastest here at which size, makes the tables by which `auto` then chooses,
// and keeps them in the user's cache for later runs that ask for them.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "allreduce/registry.hpp"
#include "allreduce/selection/tuned_tables.hpp"
#include "bench/engine/node_map.hpp"
#include "bench/engine/session.hpp"
#include "core/result.hpp"
#include "runtime/transport/arena.hpp"

namespace gradmeter::bench {

class Flags;

inline constexpr const char* tune_help =
    "5s: for so long, on top of any budget, measure which algorithm is fastest here at which size; auto then chooses "
    "by that. The tables are kept in the user's cache, and a later run takes them from there if it has --tune-auto too";

/// Checks --tune-auto if it is given. Errors: UsageError if its value is no time from 0.1 s to 24 h, if none of the
/// algorithms is plain `auto`, and if --device is not cpu.
void check_tune(const Flags&, std::span<const allreduce::AlgorithmPtr>);

/// A table by which `auto` is to choose algorithms.
struct WantedTable {
  allreduce::TableUse use;
  std::vector<int> ranks;                       ///< ranks of the session's world, in their communicator's order
  NodeMap map;                                  ///< the nodes of these ranks
  std::size_t least_bytes = 0, most_bytes = 0;  ///< the sizes of the calls that the table serves
  runtime::Pages pages = runtime::Pages::huge_if_granted;  ///< the pages of private buffers
};
/// Adds a table to the list. If the list has one of the same use already, that one's range of sizes is widened instead.
void add_wanted_table(std::vector<WantedTable>&, WantedTable);

using TablesPtr = std::shared_ptr<const allreduce::TunedTables>;
/// Returns the wanted tables, the same on all ranks; null without --tune-auto. A table is taken from the user's cache
/// if it was made for this machine and these settings, covers these sizes, and comes from a run whose --tune-auto was
/// at least as long as this run's. The other tables are measured, together in the time of --tune-auto, and put into the
/// cache; rank 0's results count. Says on standard error what was done.
/// Collective over the session's world. Errors: Interrupted.
TablesPtr tuned_tables(Session&, const Flags&, const std::vector<WantedTable>&);

/// If the algorithm chooses by a tuned table for this use, sets the factor `tuned_table` to that table's hash.
void fill_tuned(const allreduce::AlgorithmChoice&, const allreduce::TableUse&, core::Factors&);

/// Returns plain `auto` with these tables, and any other algorithm as it is. Without tables (null), every algorithm is
/// returned as it is.
allreduce::AlgorithmPtr with_tables(const allreduce::AlgorithmPtr&, const TablesPtr&);

}  // namespace gradmeter::bench
