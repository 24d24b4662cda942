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
  std::string unit;  ///< second header row ("s", "GB/s"); the row is left out when no column has a unit
  Align align = Align::right;
  /// 0: always shown. A table that is too wide first leaves out all columns of the highest number, then those of the
  /// next.
  unsigned expendable = 0;
  /// Whether the column is prose. Where a table is still too wide, cells of prose take several lines; other cells do so
  /// only if the table is too wide even then.
  bool wraps = false;
};

/// Wide enough for every table.
inline constexpr std::size_t any_width = SIZE_MAX;

/// Cells are UTF-8; control characters in them become blanks, so that a row stays a row.
class Table {
 public:
  explicit Table(std::vector<Column>);
  /// The note belongs to no column: it is written behind the row, or below it where the line would be too long.
  /// Errors: logic_error when there is not one cell for each column.
  void add_row(std::vector<std::string> cells, std::string note = {});
  std::size_t rows() const { return rows_.size(); }
  /// The header, units, rule and rows, each with its line end; columns are two blanks apart. No line is longer than
  /// `width` terminal cells, unless the columns that must stay and do not wrap are wider. A last line names the columns
  /// left out.
  std::string to_string(std::size_t width = any_width) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string note;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

/// Breaks prose into lines of at most `width` terminal cells, at blanks and behind commas and slashes. A longer word is
/// broken anywhere.
std::vector<std::string> wrap(std::string_view prose, std::size_t width);

/// The number of terminal cells that the text takes: none for combining marks, two for East Asian wide characters and
/// emoji, one for a byte that is not UTF-8.
std::size_t display_width(std::string_view utf8);

}  // namespace gradmeter::core
