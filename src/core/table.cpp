// SPDX-License-Identifier: Apache-2.0
#include "core/table.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "core/format.hpp"
#include "core/print.hpp"

namespace gradmeter::core {

namespace {

using Range = std::pair<std::uint32_t, std::uint32_t>;  // the first and the last code point of a block
// The common blocks of Unicode's categories Mn and Cf, and of East Asian Width W and F.
constexpr std::array no_width{Range{0x0300, 0x036F}, Range{0x200B, 0x200F}, Range{0x20D0, 0x20FF},
                              Range{0xFE00, 0xFE0F}, Range{0xFE20, 0xFE2F}};
constexpr std::array two_wide{Range{0x1100, 0x115F}, Range{0x2E80, 0xA4CF},   Range{0xAC00, 0xD7A3},
                              Range{0xF900, 0xFAFF}, Range{0xFE30, 0xFE6F},   Range{0xFF00, 0xFF60},
                              Range{0xFFE0, 0xFFE6}, Range{0x1F300, 0x1FAFF}, Range{0x20000, 0x3FFFD}};

template <std::size_t N>
bool is_in(const std::array<Range, N>& ranges, std::uint32_t c) {
  return std::any_of(ranges.begin(), ranges.end(), [c](const Range& r) { return c >= r.first && c <= r.second; });
}

/// Takes a code point off the front of the text, and returns the number of its terminal cells; 1 for a byte that is not
/// UTF-8.
std::size_t take_width(std::string_view& text) {
  const std::uint32_t point = detail::take_code_point(text).value_or(0);
  return is_in(no_width, point) ? 0 : is_in(two_wide, point) ? 2 : 1;
}

/// The number of bytes of `text` that go on a line of `width` terminal cells. The line ends at its last blank, or
/// behind its last comma or slash; without these, anywhere.
std::size_t line_break(std::string_view text, std::size_t width) {
  std::size_t used = 0, end = 0, break_point = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t at = text.size() - rest.size();
    if (text[at] == ' ' || (at > 0 && (text[at - 1] == ',' || text[at - 1] == '/'))) break_point = at;
    used += take_width(rest);
    if (used > width && at > 0) return break_point > 0 ? break_point : end;
    end = text.size() - rest.size();
  }
  return text.size();
}

/// The least width of notes below a row and of text below a table, even if the terminal is narrower.
constexpr std::size_t least_note_width = 24;

/// A column that is shown, with its index in the rows and its width.
struct Shown {
  const Column* column;
  std::size_t index, width;
};

std::size_t total_width(const std::vector<Shown>& shown) {
  std::size_t total = shown.empty() ? 0 : 2 * (shown.size() - 1);
  for (const Shown& s : shown) total += s.width;
  return total;
}

/// The columns that a table leaves out: index in the rows, and header.
using LeftOut = std::vector<std::pair<std::size_t, std::string>>;

/// The headers of the columns that are left out, in the table's order, each once.
std::vector<std::string> headers_of(LeftOut left_out) {
  std::sort(left_out.begin(), left_out.end());
  std::vector<std::string> headers;
  for (const auto& [at, header] : left_out) {
    if (std::find(headers.begin(), headers.end(), header) == headers.end()) headers.push_back(header);
  }
  return headers;
}

/// Moves expendable columns from `shown` to `left_out` until the rest fits.
void leave_out(std::vector<Shown>& shown, std::size_t width, LeftOut& left_out) {
  while (total_width(shown) > width) {
    unsigned most = 0;
    for (const Shown& s : shown) most = std::max(most, s.column->expendable);
    if (most == 0) break;
    for (const Shown& s : shown) {
      if (s.column->expendable == most) left_out.emplace_back(s.index, s.column->header);
    }
    std::erase_if(shown, [most](const Shown& s) { return s.column->expendable == most; });
  }
}

/// The width of the longest word in a column's header and unit, whose words are never cut.
std::size_t longest_word(const Column& c) {
  std::size_t longest = 0;
  for (std::string_view text : {std::string_view(c.header), std::string_view(c.unit)}) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(' '), text.size());
      longest = std::max(longest, display_width(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  return longest;
}

/// Narrows the widest of the columns for which `may_narrow(column)` is true, again and again, until the table fits, or
/// all these columns are as narrow as `least` and the words of their headers allow.
template <class MayNarrow>
void narrow(std::vector<Shown>& shown, std::size_t width, std::size_t least, MayNarrow may_narrow) {
  while (total_width(shown) > width) {
    Shown* widest = nullptr;
    for (Shown& s : shown) {
      const bool has_room = may_narrow(*s.column) && s.width > std::max(least, longest_word(*s.column));
      if (has_room && (!widest || s.width > widest->width)) widest = &s;
    }
    if (!widest) return;
    --widest->width;
  }
}

/// Makes the table fit, and returns the columns that it leaves out. First it leaves out expendable columns, then it
/// wraps prose, then other text. If the table is still too wide, it leaves out the last columns.
LeftOut fit(std::vector<Shown>& shown, std::size_t width) {
  constexpr std::size_t least_prose_column = 16, least_text_column = 10, least_columns = 2;
  LeftOut left_out;
  leave_out(shown, width, left_out);
  narrow(shown, width, least_prose_column, [](const Column& c) { return c.wraps; });
  narrow(shown, width, least_text_column, [](const Column& c) { return c.wraps; });
  narrow(shown, width, least_text_column, [](const Column& c) { return c.wraps || c.align == Align::left; });
  for (; total_width(shown) > width && shown.size() > least_columns; shown.pop_back())
    left_out.emplace_back(shown.back().index, shown.back().column->header);
  return left_out;
}

/// Formats one row, padded to the widths, without trailing blanks; it has as many lines as its longest cell needs.
std::string lines_of(const std::vector<Shown>& shown, const std::vector<std::string>& cells) {
  std::vector<std::vector<std::string>> wrapped;
  std::size_t height = 1;
  for (const Shown& s : shown) {
    wrapped.push_back(wrap(cells[s.index], s.width));
    height = std::max(height, wrapped.back().size());
  }
  std::string out;
  for (std::size_t k = 0; k < height; ++k) {
    std::string line;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const std::string text = k < wrapped[i].size() ? wrapped[i][k] : "";
      const std::string padding(shown[i].width - std::min(shown[i].width, display_width(text)), ' ');
      if (i > 0) line += "  ";
      line += shown[i].column->align == Align::right ? padding + text : text + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

/// A row's lines with its note. The note is at the end of the line if the row has a single line with enough room, else
/// on lines of its own.
std::string with_note(std::string lines, const std::string& note, std::size_t table_width, std::size_t width) {
  if (note.empty()) return lines;
  const std::size_t end = lines.find('\n');
  if (end + 1 == lines.size() && table_width + 2 + display_width(note) <= width) {
    const std::string_view row(lines.data(), end);
    return fmt::format("{}{:{}}{}\n", row, "", table_width - display_width(row) + 2, note);
  }
  for (const auto& line : wrap(note, std::max(width, least_note_width) - 4)) lines += fmt::format("    {}\n", line);
  return lines;
}

}  // namespace

std::vector<std::string> wrap(std::string_view prose, std::size_t width) {
  std::vector<std::string> lines;
  do {
    const std::size_t end = line_break(prose, width);
    lines.emplace_back(prose.substr(0, end));
    prose.remove_prefix(end);
    prose.remove_prefix(std::min(prose.find_first_not_of(' '), prose.size()));
  } while (!prose.empty());
  return lines;
}

std::size_t display_width(std::string_view utf8) {
  std::size_t width = 0;
  while (!utf8.empty()) width += take_width(utf8);
  return width;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (Column& c : columns_) c.header = printable(c.header), c.unit = printable(c.unit);
}

void Table::add_row(std::vector<std::string> cells, std::string note) {
  if (cells.size() != columns_.size()) {
    throw std::logic_error(fmt::format("a row of {} cells in a table of {} columns", cells.size(), columns_.size()));
  }
  for (std::string& cell : cells) cell = printable(cell);
  note = printable(note);
  rows_.push_back({std::move(cells), std::move(note)});
}

std::string Table::to_string(std::size_t width) const {
  std::vector<std::string> headers, units;
  std::vector<Shown> shown;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& c = columns_[i];
    headers.push_back(c.header);
    units.push_back(c.unit);
    std::size_t widest = std::max(display_width(c.header), display_width(c.unit));
    for (const Row& row : rows_) widest = std::max(widest, display_width(row.cells[i]));
    shown.push_back({&c, i, widest});
  }
  const auto left_out = headers_of(fit(shown, width));
  const bool has_units =
      std::any_of(shown.begin(), shown.end(), [](const Shown& s) { return !s.column->unit.empty(); });
  const std::size_t total = total_width(shown);
  std::string out = lines_of(shown, headers);
  if (has_units) out += lines_of(shown, units);
  for (std::size_t i = 0; i < total; ++i) out += "─";
  out += '\n';
  for (const Row& row : rows_) out += with_note(lines_of(shown, row.cells), row.note, total, width);
  if (!left_out.empty()) {
    const auto text = fmt::format("left out: {}; --wide shows all", fmt::join(left_out, ", "));
    for (const auto& line : wrap(text, std::max(width, least_note_width))) out += line + '\n';
  }
  return out;
}

}  // namespace gradmeter::core
