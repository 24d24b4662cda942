// SPDX-License-Identifier: Apache-2.0
#include "core/name.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"

namespace gradmeter::core {

namespace {

using detail::quote;

/// Takes the text up to `separator`, and the separator, off the front of `rest`, and returns the text. Without a
/// separator, takes all of `rest`, and sets `more` to false.
std::string_view take_until(std::string_view& rest, char separator, bool& more) {
  const std::size_t position = rest.find(separator);
  more = position != std::string_view::npos;
  const std::string_view text = rest.substr(0, position);
  rest.remove_prefix(more ? position + 1 : rest.size());
  return text;
}

void add_parameter(ParsedName& name, std::string_view item, bool first, std::string_view whole) {
  const std::size_t equals = item.find('=');
  if (equals == std::string_view::npos) {
    if (item.empty()) throw UsageError(fmt::format("{} has an empty parameter: write NAME:key=value", quote(whole)));
    if (!first) {
      throw UsageError(fmt::format("{} has the parameter {} without a value: write NAME:key=value,key=value",
                                   quote(whole), quote(item)));
    }
    name.bare = item;
    return;
  }
  const std::string key(trim(item.substr(0, equals))), value(trim(item.substr(equals + 1)));
  if (key.empty() || value.empty()) {
    throw UsageError(
        fmt::format("{} has an empty key or value in {}: write NAME:key=value", quote(whole), quote(item)));
  }
  if (!name.parameters.emplace(key, value).second) {
    throw UsageError(fmt::format("{} gives {} twice: give it once", quote(whole), quote(key)));
  }
}

/// The least number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal
/// string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row_before_last(b.size() + 1), last_row(b.size() + 1), row(b.size() + 1);
  std::iota(last_row.begin(), last_row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last_row[j] + 1, row[j - 1] + 1, last_row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], row_before_last[j - 2] + 1);
    }
    row_before_last.swap(last_row);
    last_row.swap(row);
  }
  return last_row[b.size()];
}

}  // namespace

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string ParsedName::canonical() const {
  std::string text = base;
  char separator = ':';
  if (!bare.empty()) {
    text += separator + bare;
    separator = ',';
  }
  for (const auto& [key, value] : parameters) {
    text += fmt::format("{}{}={}", separator, key, value);
    separator = ',';
  }
  return text;
}

ParsedName parse_name(std::string_view text) {
  std::string_view rest = trim(text);
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(rest.begin(), rest.end(), control)) {
    throw UsageError(fmt::format("name {} has a control character: names are plain text", quote(text)));
  }
  ParsedName name;
  bool more = false;
  name.base = trim(take_until(rest, ':', more));
  if (name.base.empty()) throw UsageError(fmt::format("name {} is empty: write NAME or NAME:key=value", quote(text)));
  for (bool first = true; more; first = false) add_parameter(name, trim(take_until(rest, ',', more)), first, text);
  return name;
}

bool is_table(std::string_view text) {
  text = trim(text);
  const std::size_t digits = text.find_first_not_of("0123456789.");
  if (digits == 0 || digits == std::string_view::npos) return false;
  const std::size_t unit = text.find_first_not_of("KMGTkmgtiB ", digits);
  return unit != std::string_view::npos && text[unit] == '-';
}

ParsedName parse_name_or_text(std::string_view text) {
  // A table with one range has the form of a name with a bare parameter.
  if (is_table(text)) return {.base = std::string(text), .bare = {}, .parameters = {}};
  try {
    return parse_name(text);
  } catch (const UsageError&) {
    return {.base = std::string(text), .bare = {}, .parameters = {}};
  }
}

std::vector<std::string> split_names(std::string_view list) {
  std::vector<std::string> names;
  std::string_view rest = list;
  for (bool more = true; more;) {
    const std::string_view item = trim(take_until(rest, ',', more));
    if (item.empty())
      throw UsageError(fmt::format("list {} has an empty name: write names parted by commas", quote(list)));
    const std::size_t equals = item.find('=');
    const bool parameter = equals != std::string_view::npos && item.find(':') > equals;
    if (!parameter) {
      names.emplace_back(item);
    } else if (!names.empty() && names.back().find(':') != std::string::npos) {
      names.back() += fmt::format(",{}", item);
    } else {
      throw UsageError(fmt::format("parameter {} in {} follows no name with parameters: write NAME:key=value",
                                   quote(item), quote(list)));
    }
  }
  return names;
}

std::string nearest(std::string_view given, std::span<const std::string> known) {
  // Allows one error for every three letters, but at least one; with more errors a suggestion would be a guess.
  std::size_t best = std::max<std::size_t>(1, given.size() / 3) + 1;
  std::string found;
  const std::string wanted = lower(given);
  for (const std::string& candidate : known) {
    const std::size_t longer_size = std::max(candidate.size(), given.size());
    if (longer_size - std::min(candidate.size(), given.size()) >= best) continue;
    const std::size_t distance = edit_distance(wanted, lower(candidate));
    if (distance < best && distance < longer_size) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

void refuse_unknown(std::string_view what, std::string_view given, std::span<const std::string> known) {
  const std::string near = nearest(given, known);
  const std::string hint = near.empty() ? "" : fmt::format(" (did you mean {}?)", quote(near));
  const std::string names = known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "));
  throw UsageError(fmt::format("{} {} is not known{}; there are: {}", what, quote(given), hint, names));
}

namespace {

template <class T>
bool reads_as(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

std::string canonical_number(const std::string& text) {
  std::uint64_t count = 0;
  if (reads_as(text, count)) return fmt::format("{}", count);  // a double has 53 bits, and a seed 64
  double value = 0;
  return reads_as(text, value) ? fmt::format("{}", value) : text;
}

}  // namespace

ParsedName with_defaults(std::string_view kind, std::string_view name, std::string_view parameters,
                         const ParsedName& given) {
  if (!given.bare.empty()) throw UsageError(fmt::format("{} {} takes no '{}'", kind, name, given.bare));
  ParsedName out{.base = std::string(name), .bare = {}, .parameters = {}};
  if (!parameters.empty()) out = parse_name(fmt::format("{}:{}", name, parameters));
  std::vector<std::string> known;
  for (const auto& [key, value] : out.parameters) known.push_back(key);
  for (const auto& [key, value] : given.parameters) {
    if (known.empty()) throw UsageError(fmt::format("{} {} takes no parameters", kind, name));
    if (!out.parameters.contains(key)) refuse_unknown(fmt::format("parameter of {}", name), key, known);
    out.parameters[key] = value;
  }
  for (auto& [key, value] : out.parameters) value = canonical_number(value);
  return out;
}

double number_parameter(const ParsedName& name, std::string_view key, NumberRange range) {
  const std::string& text = name.parameters.at(std::string(key));
  double value = 0;
  if (reads_as(text, value) && value >= range.least && value < range.below) return value;
  throw UsageError(fmt::format("{}: {} is '{}'; it must be a number from {} to below {}", name.base, key, text,
                               range.least, range.below));
}

std::uint64_t count_parameter(const ParsedName& name, std::string_view key, CountRange range) {
  const std::string& text = name.parameters.at(std::string(key));
  std::uint64_t value = 0;
  if (reads_as(text, value) && value >= range.least && value <= range.most) return value;
  throw UsageError(fmt::format("{}: {} is '{}'; it must be a whole number from {} to {}", name.base, key, text,
                               range.least, range.most));
}

}  // namespace gradmeter::core
