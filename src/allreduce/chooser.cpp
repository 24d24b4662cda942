#include "allreduce/chooser.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/units.hpp"

namespace gradmeter::allreduce {
namespace {

using core::UsageError;

constexpr std::uint64_t no_end = std::numeric_limits<std::uint64_t>::max();
constexpr std::string_view example = "write 0-64K:recursive-doubling,64K-:ring";

struct Entry {
  std::uint64_t first, end;
  AlgorithmPtr algorithm;
};

/// Exact, in the largest unit that divides it: 65536 is "64K".
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

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Entry parse_entry(std::string_view item, std::string_view table) {
  const std::size_t dash = item.find('-'), colon = item.find(':');
  if (!is_table(item) || dash == std::string_view::npos || colon == std::string_view::npos || dash > colon) {
    throw UsageError(fmt::format("table '{}': '{}' is no range with an algorithm; {}", table, item, example));
  }
  try {
    const std::string_view end = trim(item.substr(dash + 1, colon - dash - 1));
    Entry entry{.first = core::parse_bytes(item.substr(0, dash)).value,
                .end = end.empty() ? no_end : core::parse_bytes(end).value,
                .algorithm = find_algorithm(item.substr(colon + 1))};
    if (entry.end <= entry.first) {
      throw UsageError(fmt::format("{} holds no size; {}", range_text(entry.first, entry.end), example));
    }
    if (entry.algorithm->info().backend == Backend::selection) {
      throw UsageError(fmt::format("{} chooses by size itself; name one of the others", entry.algorithm->name));
    }
    return entry;
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("table '{}': {}", table, e.what()));
  }
}

void check_cover(const std::vector<Entry>& entries, std::string_view table) {
  std::uint64_t reached = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    if (e.first > reached) {
      throw UsageError(fmt::format("table '{}': no algorithm for {}, and every size needs one; {}", table,
                                   range_text(reached, e.first), example));
    }
    if (e.first < reached) {
      throw UsageError(fmt::format("table '{}': {} and {} overlap, and each size needs one algorithm; {}", table,
                                   range_text(entries[i - 1].first, entries[i - 1].end), range_text(e.first, e.end),
                                   example));
    }
    reached = e.end;
  }
  if (reached != no_end) {
    throw UsageError(fmt::format("table '{}': no algorithm from {} on, and every size needs one; end with {}-:NAME",
                                 table, size_text(reached), size_text(reached)));
  }
}

}  // namespace

TableChooser::TableChooser(std::string_view text) {
  std::vector<Entry> entries;
  for (const auto& item : core::split_names(text)) entries.push_back(parse_entry(item, text));
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.first < b.first; });
  check_cover(entries, text);
  for (Entry& e : entries) {
    const std::size_t candidate = candidate_of(std::move(e.algorithm));
    if (ranges_.empty() || ranges_.back().candidate != candidate) ranges_.push_back({e.first, candidate});
  }
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    name_ += fmt::format("{}{}:{}", i ? "," : "", range_text(i), candidates_[ranges_[i].candidate]->name);
  }
}

std::size_t TableChooser::candidate_of(AlgorithmPtr a) {
  const auto same =
      std::find_if(candidates_.begin(), candidates_.end(), [&](const auto& b) { return a->name == b->name; });
  const auto index = static_cast<std::size_t>(same - candidates_.begin());
  if (same == candidates_.end()) candidates_.push_back(std::move(a));
  return index;
}

std::size_t TableChooser::choose(std::uint64_t bytes) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), bytes,
                                      [](std::uint64_t b, const SizeRange& r) { return b < r.first; });
  return std::prev(after)->candidate;
}

std::uint64_t TableChooser::longest(std::size_t candidate) const {
  if (ranges_.back().candidate == candidate) return no_end;
  std::uint64_t longest = 0;
  for (std::size_t i = 0; i + 1 < ranges_.size(); ++i) {
    if (ranges_[i].candidate == candidate) longest = ranges_[i + 1].first - 1;
  }
  return longest;
}

std::string TableChooser::range_text(std::size_t i) const {
  return allreduce::range_text(ranges_[i].first, i + 1 < ranges_.size() ? ranges_[i + 1].first : no_end);
}

bool is_table(std::string_view text) {
  text = trim(text);
  const std::size_t digits = text.find_first_not_of("0123456789.");
  if (digits == 0 || digits == std::string_view::npos) return false;
  const std::size_t unit = text.find_first_not_of("KMGTkmgtiB ", digits);
  return unit != std::string_view::npos && text[unit] == '-';
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

}  // namespace gradmeter::allreduce
