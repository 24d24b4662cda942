// SPDX-License-Identifier: Apache-2.0
// Tables of sizes, which name the algorithm for a call of so many bytes: as text, as files, and from measured times.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allreduce/registry.hpp"
#include "core/name.hpp"

namespace gradmeter::allreduce {

/// The algorithm for calls of at least `first` and fewer than `end` bytes.
struct SizeRange {
  std::uint64_t first = 0, end = 0;
  AlgorithmPtr algorithm;
  std::size_t candidate = 0;  ///< the algorithm's index among the table's candidates
};

/// A table of ranges. Equal names mean equal ranges: all ranks must choose alike, so they compare names. The choices of
/// a cost model are written as such a table, too.
class SizeTable {
 public:
  /// Parses "0-64K:recursive-doubling,64K-:torus2d:rows=2": a range begins at its first size, and ends before its
  /// second; K, M, G are binary.
  /// Errors: UsageError in one line, which names the gap, the overlap, or a size or an algorithm that is not
  /// understood.
  explicit SizeTable(std::string_view text);

  /// The canonical text: ranges in order, neighbours with one algorithm joined, sizes in their largest whole unit.
  const std::string& name() const { return name_; }
  /// The algorithms that may be chosen, each once; none of them is itself a selection.
  std::span<const AlgorithmPtr> candidates() const { return candidates_; }
  /// The index of the candidate for calls of so many bytes. Cost: O(log of the ranges).
  std::size_t choose(std::uint64_t bytes) const;
  /// The longest call that this candidate can be chosen for [bytes].
  std::uint64_t longest(std::size_t candidate) const;
  std::span<const SizeRange> ranges() const { return ranges_; }

 private:
  void add(SizeRange);

  std::vector<AlgorithmPtr> candidates_;
  std::vector<SizeRange> ranges_;
  std::string name_;
};

using core::is_table;
/// Takes a list that was split at commas, and rejoins those items that are ranges of one table; a range from 0 begins a
/// new table.
/// "mpi", "0-64K:ring", "64K-:direct", "ring" becomes mpi, one table, ring.
std::vector<std::string> join_tables(std::vector<std::string> items);

// The same tables as files that a person can read and edit, and a table from measured times.

/// The median of one algorithm's times at one size, and its 95 % interval.
struct MeasuredSize {
  std::uint64_t bytes = 0;
  std::string algorithm;  ///< canonical
  double median_s = 0;
  double low_s = 0, high_s = std::numeric_limits<double>::infinity();  ///< 0 and infinity: not known
};

// Both functions take the median of several measurements of one algorithm at one size, and ignore selections.

/// The text of the table that names the algorithm with the least median time at each size. Where two measured sizes
/// have different algorithms, the boundary is the geometric mean of the sizes, rounded to whole M or K if it is at
/// least 8 of these and still lies between the sizes after rounding. Errors: UsageError when no measurement remains.
std::string fit_table(std::span<const MeasuredSize>);
/// The sizes [bytes], ascending, at which the algorithm with the least median time is not shown to be faster than all
/// others: its interval is not below each of theirs. Repeated measurements count as one, whose interval spans theirs.
std::vector<std::uint64_t> sizes_without_proof(std::span<const MeasuredSize>);

/// The text of a table file. It begins with a line "# COMMENT" for each comment (such as the ranks, the transport, the
/// machine's fingerprint). A line "RANGE ALGORITHM" for each range follows; behind it a comment names those of the
/// sizes `unproven` that are in the range.
std::string table_file_text(const SizeTable&, std::span<const std::string> comments,
                            std::span<const std::uint64_t> unproven = {});

/// Reads a table's text from a file in the form of `table_file_text`. Errors: UsageError naming the file and the line.
std::string read_table_file(const std::filesystem::path&);

}  // namespace gradmeter::allreduce
