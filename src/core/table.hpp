// SPDX-License-Identifier: Apache-2.0
// Text tables for a terminal: columns line up, only the header is underlined, and lines have no trailing blanks. If a
// table is too wide, columns are left out and named below it, and text is wrapped.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::core {

enum class Align { left, right };

struct Column {
  std::string header;
  std::string unit;  ///< second row of the header ("s", "GB/s"); the row is missing if no shown column has a unit
  Align align = Align::right;
  /// A table that is too wide first leaves out all columns with the highest number, then those with the next number,
  /// and so on. Columns with 0 are left out only as the last resort (see Table::to_string).
  unsigned expendable = 0;
  /// True if the column is prose. If a table is still too wide without expendable columns, prose is wrapped to several
  /// lines; if that is not enough, other left-aligned columns are wrapped too.
  bool wraps = false;
};

/// A width that every table fits in.
inline constexpr std::size_t any_width = SIZE_MAX;

/// A text table. Cells are UTF-8, and are made printable (core/print.hpp): line ends and tabs in them become blanks.
class Table {
 public:
  explicit Table(std::vector<Column>);
  /// The note belongs to no column. It is written behind the row, or below the row if the line would be too long or the
  /// row has several lines. Errors: logic_error unless there is one cell for each column.
  void add_row(std::vector<std::string> cells, std::string note = {});
  std::size_t rows() const { return rows_.size(); }
  /// The header, the units, a line under them, and the rows; columns are two blanks apart. No line is longer than
  /// `width` terminal cells (at least 24), unless the first two columns alone are wider: if wrapping is not enough, the
  /// last columns are left out until the table fits or two columns remain. A last line names all that were left out.
  std::string to_string(std::size_t width = any_width) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string note;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

/// Breaks prose into lines of at most `width` terminal cells, at blanks and behind commas and slashes. A word longer
/// than a line is broken anywhere.
std::vector<std::string> wrap(std::string_view prose, std::size_t width);

/// The number of terminal cells that the text takes: none for combining marks, two for East Asian wide characters and
/// emoji, one for a byte that is not UTF-8.
std::size_t display_width(std::string_view utf8);

}  // namespace gradmeter::core
