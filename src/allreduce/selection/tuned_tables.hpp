// SPDX-License-Identifier: Apache-2.0
// Tables of sizes that were measured where they are used (--tune-auto), for the row `auto`: which calls each serves,
// how it is chosen from times, and their text in a file.
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

/// The calls that one table serves. It serves those that agree in all of this, and no others.
struct TableUse {
  Shape shape = {};
  runtime::TransportKind transport = runtime::TransportKind::shm;
  CollectiveKind collective_kind = CollectiveKind::all_reduce;
  bool private_buffers = false;  ///< as in ExchangeSpec
  Placement placement = Placement::in_place;
  bool operator==(const TableUse&) const = default;
};
/// "all-reduce in place over shm".
std::string describe(const TableUse&);

/// True for an algorithm that a table for this use may name: it serves the ranks, has this collective, works on the
/// host's memory, and reads such buffers over this transport.
bool can_serve(const AlgorithmChoice&, const TableUse&);

struct TunedTable {
  TableUse use;
  std::string table;                              ///< canonical text
  std::uint64_t least_bytes = 0, most_bytes = 0;  ///< the sizes of the calls that it was made for
  double seconds = 0;                             ///< the time that `--tune-auto` was given
  std::uint64_t missed = 0;  ///< sizes whose choice is the shipped one since time or memory was too little to compare

  /// Eight hexadecimal digits: equal for tables that choose alike.
  std::string hash() const;
};

/// The tables of some ranks on some machine.
struct TunedTables {
  std::string made_for;  ///< machine, libraries and ranks, in words
  std::vector<TunedTable> tables;

  /// Null: there is none.
  const TunedTable* find(const TableUse&) const;
  /// Replaces the table of the same use.
  void put(TunedTable);
};

/// Changes with every change of the text below or of what a table means.
inline constexpr int tuned_tables_format = 1;
std::string to_text(const TunedTables&);
/// Errors: UsageError in one line, for a text that `to_text` has not written as it is, or whose tables name what cannot
/// serve here.
TunedTables read_tuned_tables(std::string_view text);

// These functions choose a table from measured times.

/// The sizes to measure for calls of `least` to `most` bytes: powers of four. Each speaks for the sizes from half of it
/// up to below twice it, and the first for all below.
std::vector<std::uint64_t> sizes_to_tune(std::uint64_t least, std::uint64_t most);

/// Times of algorithms at one size, by name. Time i of each is of round i, in which all took turns.
using RoundTimes = std::map<std::string, std::vector<double>>;

/// The algorithm to use in place of `shipped`: the one with the least median among those that are faster by 5 % at
/// least, and faster beyond noise, which means that the 95 % interval of the ratio of their times in the same round
/// lies below 1. `shipped` where there is none, or with fewer than `core::fewest_blocks` rounds. An algorithm that
/// lacks rounds is not chosen.
std::string faster_choice(const RoundTimes&, const std::string& shipped);

/// The text of a shipped table in which other algorithms serve the sizes that they were chosen at.
/// choices: algorithms by sizes of `sizes_to_tune`.
std::string tuned_table(std::string_view shipped, const std::map<std::uint64_t, std::string>& choices);

}  // namespace gradmeter::allreduce
