// SPDX-License-Identifier: Apache-2.0
// Tables of sizes that were measured where they are used (--tune-auto), for the row `auto`: the calls that each table
// serves, how a table is chosen from times, and the tables' text in a file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allreduce/registry.hpp"
#include "allreduce/schedule/plan.hpp"
#include "allreduce/selection/size_table.hpp"

namespace gradmeter::allreduce {

/// The use of a table: the table serves exactly the calls that agree with its use in all of these fields.
struct TableUse {
  RankShape shape = {};
  runtime::TransportKind transport = runtime::TransportKind::shm;
  CollectiveKind collective_kind = CollectiveKind::all_reduce;
  bool private_buffers = false;  ///< as in ExchangeSpec
  Placement placement = Placement::in_place;
  bool operator==(const TableUse&) const = default;
};
/// "all_reduce in place over shm".
std::string describe(const TableUse&);

/// True for an algorithm that a table for this use may name: it is no selection, serves the ranks, has this collective,
/// works on the host's memory, and can read the use's kind of buffers over the use's transport.
bool can_serve(const AlgorithmChoice&, const TableUse&);

struct TunedTable {
  TableUse use;
  std::string table;                              ///< canonical text
  std::uint64_t least_bytes = 0, most_bytes = 0;  ///< the sizes of the calls that it was made for
  double seconds = 0;                             ///< the time that `--tune-auto` was given
  /// Number of sizes that keep the shipped choice, since time or memory was too little to compare.
  std::uint64_t missed = 0;

  /// Eight hexadecimal digits: equal for tables that choose alike.
  std::string hash() const;
};

/// The tables of a group of ranks on a machine, at most one for each use.
struct TunedTables {
  std::string made_for;  ///< machine, libraries and ranks, in words
  std::vector<TunedTable> tables;

  /// The table of this use; null: there is none.
  const TunedTable* find(const TableUse&) const;
  /// Replaces the table of the same use.
  void put(TunedTable);
};

/// The version of the text that `to_text` writes; it changes when the text or what a table means changes.
inline constexpr int tuned_tables_format = 1;
std::string to_text(const TunedTables&);
/// Errors: UsageError in one line, for a text that is not exactly one that `to_text` has written, or with a table that
/// names an algorithm that cannot serve the table's use in this program.
TunedTables read_tuned_tables(std::string_view text);

// These functions choose a table from measured times.

/// The sizes to measure for calls of `least` to `most` bytes: powers of four, from 256 on. Each stands for the sizes
/// from half of it up to below twice it, and 256 also for all smaller ones.
std::vector<std::uint64_t> sizes_to_tune(std::uint64_t least, std::uint64_t most);

/// Times of algorithms at one size [s], by name. Entry i of an algorithm's times is from round i; in a round all
/// algorithms took turns.
using RoundTimes = std::map<std::string, std::vector<double>>;

/// The algorithm to use in place of `shipped`: of those that are faster, the one with the least median. Faster means by
/// 5 % at least and beyond noise: the 95 % interval of the ratio of the times in the same round lies below 1. Returns
/// `shipped` where no algorithm is faster, or with fewer than `core::fewest_blocks` rounds. An algorithm that lacks
/// rounds is not chosen.
std::string faster_choice(const RoundTimes&, const std::string& shipped);

/// The text of a shipped table, changed so that each algorithm in `choices` serves the sizes that its key stands for
/// (`sizes_to_tune`).
std::string tuned_table(std::string_view shipped, const std::map<std::uint64_t, std::string>& choices);

}  // namespace gradmeter::allreduce
