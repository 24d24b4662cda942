// Text tables for a terminal: columns line up, a rule stands under the header only, trailing blanks are left out.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::core {

enum class Align { left, right };

struct Column {
  std::string header;
  std::string unit;  ///< second header row ("s", "GB/s"); the row is left out when no column has a unit
  Align align = Align::right;
};

/// Cells are UTF-8; control characters in them become blanks, so that a row stays a row.
class Table {
 public:
  explicit Table(std::vector<Column>);
  /// Errors: logic_error when there is not one cell for each column.
  void add_row(std::vector<std::string> cells);
  std::size_t rows() const { return rows_.size(); }
  /// Header, units, rule and rows, each line ended; columns two blanks apart.
  std::string to_string() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Terminal cells that the text takes: combining marks none, East Asian wide characters and emoji two, a byte that is
/// not UTF-8 one.
std::size_t display_width(std::string_view utf8);

}  // namespace gradmeter::core
