#include "core/table.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>

#include "core/format.hpp"

namespace gradmeter::core {

namespace {

struct Range {
  std::uint32_t first, last;
};
// The common blocks of Unicode's categories Mn and Cf, and of East Asian Width W and F.
constexpr std::array kNoWidth{Range{0x0300, 0x036F}, Range{0x200B, 0x200F}, Range{0x20D0, 0x20FF},
                              Range{0xFE00, 0xFE0F}, Range{0xFE20, 0xFE2F}};
constexpr std::array kTwoWide{Range{0x1100, 0x115F}, Range{0x2E80, 0xA4CF},   Range{0xAC00, 0xD7A3},
                              Range{0xF900, 0xFAFF}, Range{0xFE30, 0xFE6F},   Range{0xFF00, 0xFF60},
                              Range{0xFFE0, 0xFFE6}, Range{0x1F300, 0x1FAFF}, Range{0x20000, 0x3FFFD}};

template <std::size_t N>
bool is_in(const std::array<Range, N>& ranges, std::uint32_t c) {
  return std::any_of(ranges.begin(), ranges.end(), [c](const Range& r) { return c >= r.first && c <= r.last; });
}

/// Takes one code point off the front; a byte that begins none counts as itself.
std::uint32_t take_code_point(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 1;
  std::uint32_t point = length == 1 ? lead : lead & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    if ((byte & 0xC0) != 0x80) {
      text.remove_prefix(1);
      return lead;
    }
    point = point << 6 | (byte & 0x3Fu);
  }
  text.remove_prefix(length);
  return point;
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

/// One line of cells, padded to the widths, without trailing blanks.
void append_line(std::string& out, const std::vector<Column>& columns, const std::vector<std::size_t>& widths,
                 const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - display_width(cells[i]), ' ');
    if (i > 0) line += "  ";
    line += columns[i].align == Align::right ? padding + cells[i] : cells[i] + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + '\n';
}

}  // namespace

std::size_t display_width(std::string_view utf8) {
  std::size_t width = 0;
  while (!utf8.empty()) {
    const std::uint32_t point = take_code_point(utf8);
    width += is_in(kNoWidth, point) ? 0 : is_in(kTwoWide, point) ? 2 : 1;
  }
  return width;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) {
    throw std::logic_error(fmt::format("a row of {} cells in a table of {} columns", cells.size(), columns_.size()));
  }
  for (std::string& cell : cells) cell = one_line(std::move(cell));
  rows_.push_back(std::move(cells));
}

std::string Table::to_string() const {
  std::vector<std::string> headers, units;
  std::vector<std::size_t> widths;
  bool has_units = false;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    headers.push_back(one_line(columns_[i].header));
    units.push_back(one_line(columns_[i].unit));
    has_units = has_units || !units[i].empty();
    std::size_t width = std::max(display_width(headers[i]), display_width(units[i]));
    for (const auto& row : rows_) width = std::max(width, display_width(row[i]));
    widths.push_back(width);
  }
  std::size_t total = columns_.empty() ? 0 : 2 * (columns_.size() - 1);
  for (const std::size_t width : widths) total += width;
  std::string out;
  append_line(out, columns_, widths, headers);
  if (has_units) append_line(out, columns_, widths, units);
  for (std::size_t i = 0; i < total; ++i) out += "─";
  out += '\n';
  for (const auto& row : rows_) append_line(out, columns_, widths, row);
  return out;
}

}  // namespace gradmeter::core
