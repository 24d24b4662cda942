// SPDX-License-Identifier: Apache-2.0
#include "core/csv.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/format.hpp"

namespace gradmeter::core {
namespace {

/// Reads all of `text` as a number. False: it is not a number, or there is more text behind the number.
template <class Number>
bool reads(const std::string& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

std::string_view without_return(std::string_view line) {
  return !line.empty() && line.back() == '\r' ? line.substr(0, line.size() - 1) : line;
}

/// The values of a line. Errors: CsvFault for a quote that does not end, or has text behind it.
std::vector<CsvCell> csv_cells(std::string_view line) {
  std::vector<CsvCell> out;
  for (std::size_t at = 0;;) {
    CsvCell cell{.text = {}, .begin_byte = at + 1};
    if (at < line.size() && line[at] == '"') {
      for (std::size_t from = at + 1;;) {
        const std::size_t end = line.find('"', from);
        if (end == std::string_view::npos) throw CsvFault{cell.begin_byte, "a quote that does not end"};
        cell.text += line.substr(from, end - from);
        at = from = end + 1;
        if (at >= line.size() || line[at] != '"') break;
        cell.text += line[from++];
      }
      if (at < line.size() && line[at] != ',') throw CsvFault{at + 1, "text behind a quoted value"};
    } else {
      const std::size_t end = std::min(line.find(',', at), line.size());
      cell.text = line.substr(at, end - at);
      at = end;
    }
    out.push_back(std::move(cell));
    if (at >= line.size()) return out;
    ++at;
  }
}

}  // namespace

CsvRow::CsvRow(const std::vector<std::string>& names, const std::vector<CsvCell>& cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i >= names.size()) throw CsvFault{cells[i].begin_byte, fmt::format("more than {} values", names.size())};
    cells_[names[i]] = cells[i];
  }
  if (cells.size() < names.size()) {
    throw CsvFault{cells.back().begin_byte + cells.back().text.size(),
                   fmt::format("{} values, not {}: '{}' is missing", cells.size(), names.size(), names[cells.size()])};
  }
}

const CsvCell* CsvRow::find(const char* name) const {
  const auto it = cells_.find(name);
  return it == cells_.end() ? nullptr : &it->second;
}

const CsvCell& CsvRow::need(const char* name) const {
  const CsvCell* c = find(name);
  if (!c) throw CsvFault{1, fmt::format("there is no column {}", name)};
  return *c;
}

std::size_t CsvRow::count(const char* name, std::size_t least, std::optional<std::size_t> fallback) const {
  if (!find(name) && fallback) return *fallback;
  const CsvCell& c = need(name);
  std::size_t value = 0;
  constexpr std::size_t most = std::size_t{1} << 40;
  if (!reads(c.text, value) || value < least || value > most) {
    throw CsvFault{c.begin_byte, fmt::format("'{}' is no whole number of at least {} for {}", c.text, least, name)};
  }
  return value;
}

std::vector<std::size_t> CsvRow::extents(const char* name, std::size_t least) const {
  const CsvCell* c = find(name);
  std::vector<std::size_t> out;
  if (!c || c->text.empty() || c->text == "-") return out;
  constexpr std::size_t most = std::size_t{1} << 40;
  for (std::size_t at = 0, product = 1; at <= c->text.size();) {
    const std::size_t end = std::min(c->text.find('x', at), c->text.size());
    const std::string piece = c->text.substr(at, end - at);
    std::size_t value = 0;
    if (!reads(piece, value) || value < least || value > most / product) {
      throw CsvFault{c->begin_byte + at,
                     fmt::format("'{}' of '{}' is no whole number of at least {} for {}, or too large", piece, c->text,
                                 least, name)};
    }
    out.push_back(value);
    product *= std::max<std::size_t>(value, 1);
    at = end + 1;
  }
  return out;
}

double CsvRow::share(const char* name) const {
  const CsvCell& c = need(name);
  double value = 0;
  if (!reads(c.text, value) || !(value >= 0 && value < 1)) {
    throw CsvFault{c.begin_byte, fmt::format("'{}' is no number from 0 to below 1 for {}", c.text, name)};
  }
  return value;
}

std::optional<double> CsvRow::number(const char* name) const {
  const CsvCell* c = find(name);
  if (!c || c->text.empty()) return {};
  double value = 0;
  if (!reads(c->text, value) || !std::isfinite(value)) {
    throw CsvFault{c->begin_byte, fmt::format("'{}' is no number for {}", c->text, name)};
  }
  return value;
}

std::size_t CsvRow::choice(const char* name, const std::vector<std::string_view>& allowed) const {
  const CsvCell* c = find(name);
  if (!c) return 0;
  const auto it = std::ranges::find(allowed, c->text);
  if (it == allowed.end())
    throw CsvFault{c->begin_byte, fmt::format("'{}' is none of {}", c->text, fmt::join(allowed, ", "))};
  return static_cast<std::size_t>(it - allowed.begin());
}

std::vector<std::string> read_csv(std::string_view text, const std::string& file,
                                  const std::function<void(const std::vector<std::string>& names)>& head,
                                  const std::function<void(const CsvRow&, std::size_t line)>& row) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::vector<std::string> faults, names;
  for (std::size_t at = 0, line = 1; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view content = without_return(text.substr(at, end - at));
    at = end + 1;
    if (content.empty() || content.front() == '#') continue;
    try {
      const auto cells = csv_cells(content);
      if (!names.empty()) {
        row(CsvRow(names, cells), line);
        continue;
      }
      for (const auto& c : cells) names.push_back(c.text);
      head(names);
    } catch (const CsvFault& f) {
      faults.push_back(fmt::format("{}:{}:{}: {}", file, line, f.begin_byte, f.what));
    }
  }
  return faults;
}

}  // namespace gradmeter::core
