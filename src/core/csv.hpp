// SPDX-License-Identifier: Apache-2.0
// Reads CSV: first a line with the names of the columns, then one line for each row. Lines that begin with # are
// comments. Values may be quoted; "" then stands for a quote. Messages about faults name line and column.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::core {

/// One value of a line. `begin_byte` is the byte of the line at which the value begins, counted from 1.
struct CsvCell {
  std::string text;
  std::size_t begin_byte = 1;
};

/// What is wrong with a row, and at which byte of its line. Thrown by CsvRow and by read_csv's callbacks; read_csv
/// catches it.
struct CsvFault {
  std::size_t begin_byte;
  std::string what;
};

/// One row; its values are read by the names of their columns. Errors: CsvFault.
class CsvRow {
 public:
  CsvRow(const std::vector<std::string>& names, const std::vector<CsvCell>& cells);

  /// A whole number from `least` to 2^40. If the table has no such column, returns `fallback`, or throws CsvFault if
  /// there is no fallback.
  std::size_t count(const char* name, std::size_t least, std::optional<std::size_t> fallback = {}) const;
  /// Whole numbers joined by x, "3x224x224": each at least `least`, their product at most 2^40. Empty if the cell is
  /// empty or "-", or if the column is missing.
  std::vector<std::size_t> extents(const char* name, std::size_t least) const;
  /// A number from 0 to below 1.
  double share(const char* name) const;
  /// A number; empty if the cell is empty or the column is missing.
  std::optional<double> number(const char* name) const;
  /// The index of the value in `allowed`; 0 if the column is missing.
  std::size_t choice(const char* name, const std::vector<std::string_view>& allowed) const;
  /// The value as it stands; empty if the column is missing.
  std::string text(const char* name) const { return find(name) ? find(name)->text : ""; }
  /// The byte of the line at which the value begins, counted from 1; 1 if the column is missing.
  std::size_t begin_byte(const char* name) const { return find(name) ? find(name)->begin_byte : 1; }

 private:
  const CsvCell* find(const char* name) const;
  const CsvCell& need(const char* name) const;
  std::map<std::string, CsvCell> cells_;
};

/// Calls `head` with the names of the columns, then `row` with each row and its line number, counted from 1. Comments,
/// empty lines and UTF-8's byte order mark are skipped. If a callback throws CsvFault, reading goes on with the next
/// line. Returns all faults, each as "FILE:LINE:COLUMN: what".
std::vector<std::string> read_csv(std::string_view text, const std::string& file,
                                  const std::function<void(const std::vector<std::string>& names)>& head,
                                  const std::function<void(const CsvRow&, std::size_t line)>& row);

}  // namespace gradmeter::core
