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

/// Checks --tune-auto where it is given. Errors: UsageError for a time that is none, where the algorithms lack `auto`,
/// and for a GPU's memory.
void check_tune(const Flags&, std::span<const allreduce::AlgorithmPtr>);

/// A table that `auto` would use, on these ranks of the session's world, in the order of their communicator.
struct WantedTable {
  allreduce::TableUse use;
  std::vector<int> ranks;
  NodeMap map;                                     ///< the nodes of these ranks
  std::size_t least_bytes = 0, most_bytes = 0;     ///< the sizes of the calls that the table serves
  runtime::Pages pages = runtime::Pages::advised;  ///< the pages of private buffers
};
/// Adds it; where a table of the same use is wanted already, adds its sizes to that one.
void want(std::vector<WantedTable>&, WantedTable);

using TablesPtr = std::shared_ptr<const allreduce::TunedTables>;
/// The wanted tables, the same on all ranks: those kept in the user's cache that fit, the others measured in the time
/// of --tune-auto, by rank 0's choice, and kept. Says on standard error what it did. Null without --tune-auto.
/// Collective over the session's world. Errors: Interrupted.
TablesPtr tuned_tables(Session&, const Flags&, const std::vector<WantedTable>&);

/// Sets the factor `tuned_table` where a tuned table of the algorithm serves this use.
void fill_tuned(const allreduce::AlgorithmChoice&, const allreduce::TableUse&, core::Factors&);

/// `auto` with these tables; any other algorithm, and every one without tables, as it is.
allreduce::AlgorithmPtr with_tables(const allreduce::AlgorithmPtr&, const TablesPtr&);

}  // namespace gradmeter::bench
