// Text tables for a terminal: columns line up, a rule stands under the header only, trailing blanks are left out. A
// table that is too wide leaves out columns, says which, and wraps prose.
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
  /// 0: always shown. In a table that is too wide, the columns of the highest number are left out first, together.
  unsigned expendable = 0;
  bool wraps = false;  ///< prose: in a table that is still too wide, its cells take several lines
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
  /// Header, units, rule and rows, each line ended; columns two blanks apart. No line is longer than `width` terminal
  /// cells unless the columns that must stay and do not wrap are; a last line names the columns left out.
  std::string to_string(std::size_t width = any_width) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string note;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

/// Terminal cells that the text takes: combining marks none, East Asian wide characters and emoji two, a byte that is
/// not UTF-8 one.
std::size_t display_width(std::string_view utf8);

}  // namespace gradmeter::core
