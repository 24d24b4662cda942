// SPDX-License-Identifier: Apache-2.0
#include "allreduce/selection/size_table.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/statistics.hpp"
#include "core/units.hpp"

namespace gradmeter::allreduce {
namespace {

using core::UsageError;

constexpr std::uint64_t no_end = std::numeric_limits<std::uint64_t>::max();
constexpr std::string_view example = "write 0-64K:recursive-doubling,64K-:ring";

/// The size in the largest unit that divides it: 65536 is "64K".
std::string size_text(std::uint64_t bytes) {
  constexpr std::string_view units = "KMG";
  std::string unit;
  for (std::size_t i = 0; i < units.size() && bytes > 0 && bytes % 1024 == 0; ++i) {
    bytes /= 1024;
    unit = units[i];
  }
  return fmt::format("{}{}", bytes, unit);
}

std::string range_text(std::uint64_t first, std::uint64_t end) {
  return fmt::format("{}-{}", size_text(first), end == no_end ? "" : size_text(end));
}
/// "64K-1M"
std::string range_text(const SizeRange& r) { return range_text(r.first, r.end); }

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

SizeRange parse_range(std::string_view item, std::string_view table) {
  const std::size_t dash = item.find('-'), colon = item.find(':');
  if (!is_table(item) || dash == std::string_view::npos || colon == std::string_view::npos || dash > colon) {
    throw UsageError(fmt::format("table '{}': '{}' is no range with an algorithm; {}", table, item, example));
  }
  try {
    const std::string_view end = trim(item.substr(dash + 1, colon - dash - 1));
    SizeRange range{.first = core::parse_bytes(item.substr(0, dash)).value,
                    .end = end.empty() ? no_end : core::parse_bytes(end).value,
                    .algorithm = find_algorithm(item.substr(colon + 1))};
    if (range.end <= range.first) throw UsageError(fmt::format("{} holds no size; {}", range_text(range), example));
    if (range.algorithm->info().backend == Backend::selection) {
      throw UsageError(fmt::format("{} chooses by size itself; name one of the others", range.algorithm->name));
    }
    return range;
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("table '{}': {}", table, e.what()));
  }
}

void check_cover(std::span<const SizeRange> ranges, std::string_view table) {
  std::uint64_t reached = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const SizeRange& r = ranges[i];
    if (r.first > reached) {
      throw UsageError(fmt::format("table '{}': no algorithm for {}, and every size needs one; {}", table,
                                   range_text(reached, r.first), example));
    }
    if (r.first < reached) {
      throw UsageError(fmt::format("table '{}': {} and {} overlap, and each size needs one algorithm; {}", table,
                                   range_text(ranges[i - 1]), range_text(r), example));
    }
    reached = r.end;
  }
  if (reached != no_end) {
    throw UsageError(fmt::format("table '{}': no algorithm from {} on, and every size needs one; end with {}-:NAME",
                                 table, size_text(reached), size_text(reached)));
  }
}

}  // namespace

SizeTable::SizeTable(std::string_view text) {
  std::vector<SizeRange> ranges;
  for (const auto& item : core::split_names(text)) ranges.push_back(parse_range(item, text));
  std::ranges::stable_sort(ranges, {}, &SizeRange::first);
  check_cover(ranges, text);
  for (SizeRange& r : ranges) add(std::move(r));
  for (const SizeRange& r : ranges_) {
    name_ += fmt::format("{}{}:{}", name_.empty() ? "" : ",", range_text(r), r.algorithm->name);
  }
}

/// Appends the range, or extends the last one if both have the same algorithm.
void SizeTable::add(SizeRange r) {
  const auto same = std::ranges::find(
      candidates_, r.algorithm->name, [](const AlgorithmPtr& a) -> const auto& { return a->name; });
  r.candidate = static_cast<std::size_t>(same - candidates_.begin());
  if (same == candidates_.end()) candidates_.push_back(r.algorithm);
  if (!ranges_.empty() && ranges_.back().candidate == r.candidate) {
    ranges_.back().end = r.end;
  } else {
    ranges_.push_back(std::move(r));
  }
}

std::size_t SizeTable::choose(std::uint64_t bytes) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), bytes,
                                      [](std::uint64_t b, const SizeRange& r) { return b < r.first; });
  return std::prev(after)->candidate;
}

std::uint64_t SizeTable::longest(std::size_t candidate) const {
  std::uint64_t end = 0;
  for (const SizeRange& r : ranges_) {
    if (r.candidate == candidate) end = r.end;
  }
  return end == no_end ? no_end : end - 1;
}

std::vector<std::string> join_tables(std::vector<std::string> items) {
  std::vector<std::string> out;
  for (std::string& item : items) {
    const bool opens = item.substr(0, item.find('-')) == "0";
    if (is_table(item) && !opens && !out.empty() && is_table(out.back())) {
      out.back() += fmt::format(",{}", item);
    } else {
      out.push_back(std::move(item));
    }
  }
  return out;
}

namespace {

/// The size at which one algorithm's range ends and the next one's begins: above `below`, and at most `above`.
std::uint64_t boundary(std::uint64_t below, std::uint64_t above) {
  // A geometric mean with 0 would be 0.
  const double mean = std::sqrt(static_cast<double>(std::max<std::uint64_t>(below, 1)) * static_cast<double>(above));
  for (const std::uint64_t unit : {std::uint64_t{1} << 20, std::uint64_t{1} << 10}) {
    // From eight units on, rounding moves the boundary by at most a sixteenth.
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

namespace {

/// The measurements of each size, one for each algorithm that is no selection; the fastest is the first.
std::map<std::uint64_t, std::vector<MeasuredSize>> by_size(std::span<const MeasuredSize> points) {
  std::map<std::pair<std::uint64_t, std::string>, std::vector<const MeasuredSize*>> repeats;
  for (const MeasuredSize& p : points) {
    if (find_algorithm(p.algorithm)->info().backend != Backend::selection)
      repeats[{p.bytes, p.algorithm}].push_back(&p);
  }
  std::map<std::uint64_t, std::vector<MeasuredSize>> out;
  for (const auto& [key, measured] : repeats) {
    MeasuredSize joined = *measured.front();
    std::vector<double> medians;
    for (const MeasuredSize* p : measured) {
      medians.push_back(p->median_s);
      joined.low_s = std::min(joined.low_s, p->low_s);
      joined.high_s = std::max(joined.high_s, p->high_s);
    }
    joined.median_s = core::median(medians);
    out[joined.bytes].push_back(std::move(joined));
  }
  for (auto& [bytes, algorithms] : out) std::ranges::stable_sort(algorithms, {}, &MeasuredSize::median_s);
  return out;
}

}  // namespace

std::string fit_table(std::span<const MeasuredSize> points) {
  const auto sizes = by_size(points);
  if (sizes.empty()) throw UsageError("a table needs at least one size measured with an algorithm that is no table");
  std::string text = "0";
  const MeasuredSize* before = nullptr;
  for (const auto& [bytes, algorithms] : sizes) {
    const MeasuredSize& fastest = algorithms.front();
    if (before && before->algorithm != fastest.algorithm) {
      const std::uint64_t at = boundary(before->bytes, bytes);
      text += fmt::format("-{}:{},{}", at, before->algorithm, at);
    }
    before = &fastest;
  }
  return SizeTable(fmt::format("{}-:{}", text, before->algorithm)).name();
}

std::vector<std::uint64_t> sizes_without_proof(std::span<const MeasuredSize> points) {
  std::vector<std::uint64_t> out;
  for (const auto& [bytes, algorithms] : by_size(points)) {
    const double high = algorithms.front().high_s;
    const bool is_shown = std::all_of(algorithms.begin() + 1, algorithms.end(),
                                      [high](const MeasuredSize& other) { return high < other.low_s; });
    if (!is_shown) out.push_back(bytes);
  }
  return out;
}

std::string table_file_text(const SizeTable& table, std::span<const std::string> comments,
                            std::span<const std::uint64_t> unproven) {
  std::string out;
  for (const auto& c : comments) out += fmt::format("# {}\n", c);
  std::size_t width = 0;
  for (const SizeRange& r : table.ranges()) width = std::max(width, range_text(r).size());
  for (const SizeRange& r : table.ranges()) {
    std::vector<std::string> sizes;
    for (const std::uint64_t bytes : unproven) {
      if (bytes >= r.first && bytes < r.end) sizes.push_back(size_text(bytes));
    }
    out += fmt::format(
        "{:<{}}  {}{}\n", range_text(r), width, r.algorithm->name,
        sizes.empty() ? "" : fmt::format("  # not shown to be faster than all others at {}", fmt::join(sizes, ", ")));
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
    const std::size_t name_begin = text.find_first_not_of(" \t", blank);
    if (blank == std::string_view::npos || !is_table(text) || text.find(',', 0) < blank) {
      throw UsageError(fmt::format("table file {}, line {}: '{}' is not a range and an algorithm, as in '0-64K ring'",
                                   path.string(), number, text));
    }
    table += fmt::format("{}{}:{}", table.empty() ? "" : ",", text.substr(0, blank), text.substr(name_begin));
  }
  try {
    if (table.empty()) throw UsageError("it has no range; write lines such as '0-64K ring'");
    return SizeTable(table).name();
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("table file {}: {}", path.string(), e.what()));
  }
}

}  // namespace gradmeter::allreduce
