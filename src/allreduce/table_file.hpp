// Tables of algorithms as text that a person can read and edit, and a table from measured times.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "allreduce/chooser.hpp"

namespace gradmeter::allreduce {

/// One median of one algorithm at one size.
struct MeasuredSize {
  std::uint64_t bytes = 0;
  std::string algorithm;  ///< canonical
  double median_s = 0;
};

/// The table text of the fastest at each size. Where the fastest changes between two sizes, the boundary is their
/// geometric mean, rounded to whole K or M where that stays between them. Selections among the points are left out.
/// Errors: UsageError when nothing is left.
std::string fit_table(std::span<const MeasuredSize>);

/// "RANGE ALGORITHM" lines under the comments, each of which becomes a line "# comment": the ranks, the transport, the
/// machine's fingerprint.
std::string table_file_text(const TableChooser&, std::span<const std::string> comments);

/// The table text in a file of such lines. Errors: UsageError naming the file and the line.
std::string read_table_file(const std::filesystem::path&);

}  // namespace gradmeter::allreduce
