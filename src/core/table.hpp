// SPDX-License-Identifier: Apache-2.0
// Text tables for a terminal: columns line up, a rule stands under the header only, trailing blanks are left out. A
// table that is too wide leaves out columns, says which, and wraps text.
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
  /// 0: always shown. A table that is too wide leaves out all columns of the highest number, then those of the next.
  unsigned expendable = 0;
  /// Whether the column is prose, whose cells take several lines in a table that is still too wide. Cells of other text
  /// do so only if the table is too wide even then.
  bool wraps = false;
};

/// Wide enough for every table.
inline constexpr std::size_t any_width = SIZE_MAX;

/// Cells are UTF-8; control characters in them become blanks, so that a row stays a row.
class Table {
 public:
  explicit Table(std::vector<Column>);
  /// The note belongs to no column: it stands behind the row, or below it where the line would be too long.
  /// Errors: logic_error when there is not one cell for each column.
  void add_row(std::vector<std::string> cells, std::string note = {});
  std::size_t rows() const { return rows_.size(); }
  /// The header, units, rule and rows, each with its line end; columns are two blanks apart. No line is longer than
  /// `width` terminal cells unless columns that must stay and do not wrap are; a last line names the columns left out.
  std::string to_string(std::size_t width = any_width) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string note;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

/// Prose in lines of at most `width` terminal cells, cut at blanks and behind commas and slashes; a longer
/// word is cut anywhere.
std::vector<std::string> wrap(std::string_view prose, std::size_t width);

/// Terminal cells that the text takes: combining marks none, East Asian wide characters and emoji two, a byte that is
/// not UTF-8 one.
std::size_t display_width(std::string_view utf8);

}  // namespace gradmeter::core
