#include "allreduce/table_file.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

using core::UsageError;

/// A size above `below`, at most `above`: where one algorithm's range ends and the other's begins.
std::uint64_t boundary(std::uint64_t below, std::uint64_t above) {
  // A geometric mean with 0 would be 0.
  const double mean = std::sqrt(static_cast<double>(std::max<std::uint64_t>(below, 1)) * static_cast<double>(above));
  for (const std::uint64_t unit : {std::uint64_t{1} << 20, std::uint64_t{1} << 10}) {
    // Eight units and more: rounding moves the boundary by a sixteenth at most.
    if (mean < 8.0 * static_cast<double>(unit)) continue;
    const auto round = static_cast<std::uint64_t>(std::llround(mean / static_cast<double>(unit))) * unit;
    if (round > below && round <= above) return round;
  }
  return std::clamp(static_cast<std::uint64_t>(std::llround(mean)), below + 1, above);
}

std::string_view without_comment(std::string_view line) {
  constexpr std::string_view blanks = " \t\r";
  line = line.substr(0, line.find('#'));
  const std::size_t first = line.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(blanks) - first + 1);
}

}  // namespace

std::string fit_table(std::span<const MeasuredSize> points) {
  std::map<std::uint64_t, const MeasuredSize*> fastest;
  for (const MeasuredSize& p : points) {
    if (find_algorithm(p.algorithm)->info().backend == Backend::selection) continue;
    const auto [at, is_new] = fastest.emplace(p.bytes, &p);
    if (!is_new && p.median_s < at->second->median_s) at->second = &p;
  }
  if (fastest.empty()) throw UsageError("a table needs at least one size measured with an algorithm that is no table");
  std::string text = "0";
  const MeasuredSize* before = nullptr;
  for (const auto& [bytes, p] : fastest) {
    if (before && before->algorithm != p->algorithm) {
      const std::uint64_t at = boundary(before->bytes, bytes);
      text += fmt::format("-{}:{},{}", at, before->algorithm, at);
    }
    before = p;
  }
  return TableChooser(fmt::format("{}-:{}", text, before->algorithm)).name();
}

std::string table_file_text(const TableChooser& table, std::span<const std::string> comments) {
  std::string out;
  for (const auto& c : comments) out += fmt::format("# {}\n", c);
  std::size_t width = 0;
  const auto ranges = table.ranges();
  for (std::size_t i = 0; i < ranges.size(); ++i) width = std::max(width, table.range_text(i).size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    out += fmt::format("{:<{}}  {}\n", table.range_text(i), width, table.candidates()[ranges[i].candidate]->name);
  }
  return out;
}

std::string read_table_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    throw UsageError(
        fmt::format("table file {} cannot be read; write one with lines such as '0-64K ring'", path.string()));
  }
  std::string table, line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string_view text = without_comment(line);
    if (text.empty()) continue;
    const std::size_t blank = text.find_first_of(" \t");
    const std::size_t name = text.find_first_not_of(" \t", blank);
    if (blank == std::string_view::npos || !is_table(text) || text.find(',', 0) < blank) {
      throw UsageError(fmt::format("table file {}, line {}: '{}' is not a range and an algorithm, as in '0-64K ring'",
                                   path.string(), number, text));
    }
    table += fmt::format("{}{}:{}", table.empty() ? "" : ",", text.substr(0, blank), text.substr(name));
  }
  try {
    if (table.empty()) throw UsageError("it has no range; write lines such as '0-64K ring'");
    return TableChooser(table).name();
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("table file {}: {}", path.string(), e.what()));
  }
}

}  // namespace gradmeter::allreduce
