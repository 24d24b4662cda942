// SPDX-License-Identifier: Apache-2.0
#include "importers/rows.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "core/format.hpp"

namespace gradmeter::importers {
namespace {

using core::UsageError;

/// The format of the tool whose output begins with the line; empty: the line begins none.
std::string_view format_begun_by(std::string_view line) {
  if (line.starts_with("# OSU ")) return "osu";
  for (const std::string_view head :
       {"# nccl-tests version", "# Collective test starting:", "# nThread", "# Using devices"})
    if (line.starts_with(head)) return "nccl-tests";
  if (line.starts_with('#') &&
      (line.find("MPI Benchmarks") != std::string_view::npos || line.starts_with("# Benchmarking ")))
    return "imb";
  if (line.find("COMMS-RES") != std::string_view::npos) return "param";
  return line.find("# of floats") == std::string_view::npos ? "" : "deepbench";
}

}  // namespace

std::string Faults::text() const {
  std::vector<std::string> left_out;
  const auto rows = [](std::size_t n) { return fmt::format("{} row{}", n, n == 1 ? "" : "s"); };
  for (const auto& [name, other] : other_kinds)
    left_out.push_back(fmt::format("{} of '{}' (line {}: {})", rows(other.rows), name, other.line,
                                   other.why.empty() ? unknown_kind : other.why));
  if (without_time > 0) left_out.push_back(rows(without_time) + " whose time or rate is 0 or less");
  if (without_bytes > 0) left_out.push_back(rows(without_bytes) + " of 0 bytes");
  if (unreadable > 0) left_out.push_back(fmt::format("{} that cannot be read ({})", rows(unreadable), why_unreadable));
  if (cut_line > 0) left_out.push_back(fmt::format("line {}, the last row, which is cut", cut_line));
  std::string out = left_out.empty() ? "" : fmt::format("left out: {}", fmt::join(left_out, ", "));
  if (contradictory > 0) {
    out += fmt::format("{}mistrusted: {} whose columns contradict each other", out.empty() ? "" : "; ",
                       rows(contradictory));
  }
  return out;
}

void Faults::add_other(const std::string& name, std::size_t line, const std::string& why) {
  OtherKind& other = other_kinds[name];
  if (other.rows++ == 0) {
    other.line = line;
    other.why = why;
  }
}

bool Faults::are_all_of_unknown_kind() const {
  return !other_kinds.empty() && without_time + without_bytes + unreadable + cut_line == 0 &&
         std::ranges::all_of(other_kinds, [](const auto& other) { return other.second.why == unknown_kind; });
}

void Faults::add_unreadable(std::string why) {
  if (unreadable++ == 0) why_unreadable = std::move(why);
}

LogReader::LogReader(std::string_view text, std::string_view own_format) : text_(text), own_format_(own_format) {
  if (!text.empty() && !text.ends_with('\n'))
    unended_line_ = 1 + static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

bool LogReader::is_of_other_tool(std::string_view line, std::size_t number) {
  if (const std::string_view begun = format_begun_by(line); !begun.empty()) {
    end_rows();
    other_format_ = begun == own_format_ ? "" : begun;
  }
  if (other_format_.empty()) return false;
  if (begins_with_count(line) || line.find("COMMS-RES-") != std::string_view::npos) {
    static const std::map<std::string_view, std::string> tools{{"deepbench", "DeepBench"},
                                                               {"nccl-tests", "nccl-tests"},
                                                               {"osu", "OSU micro-benchmarks"},
                                                               {"imb", "Intel MPI Benchmarks"},
                                                               {"param", "PARAM"}};
    faults.add_other(tools.at(other_format_), number,
                     fmt::format("another tool's, which --format {} reads", other_format_));
  }
  return true;
}

void LogReader::end_rows(bool is_log_end) {
  if (!piece_.empty() && is_log_end && piece_is_cut_) {
    faults.cut_line = piece_line_;
  } else if (!piece_.empty()) {
    faults.add_unreadable(why_);
  }
  piece_.clear();
}

namespace {

/// True if the last four words are numbers, as in a row whose begin is hidden.
bool ends_like_a_row(std::string_view line) {
  constexpr std::size_t least = 4;
  const auto words = words_of(line);
  return words.size() >= least && std::ranges::all_of(words.end() - least, words.end(), [](const std::string& word) {
           return word.find_first_not_of("0123456789.e+-") == std::string::npos &&
                  word.find_first_of(digits) != std::string::npos;
         });
}

}  // namespace

void LogReader::add_row(std::string_view line, std::size_t number, bool begins, const Read& read, bool hides) {
  if (number == unended_line_) {  // it may look whole although its last number is cut
    if (begins || hides || !piece_.empty()) faults.cut_line = piece_.empty() ? number : piece_line_;
    piece_.clear();
    return;
  }
  const auto count_hidden = [&] {
    if (hides || ends_like_a_row(line))
      faults.add_unreadable(fmt::format("line {}: something else stands before the row, or its begin is lost", number));
  };
  if (piece_.empty() && !begins) return count_hidden();
  bool is_cut = false;
  const auto refusal = [&](std::string_view row, bool joined) -> std::optional<std::string> {
    const Faults before = faults;
    try {
      read(row, joined);
      return std::nullopt;
    } catch (const UsageError& e) {
      is_cut = dynamic_cast<const CutRow*>(&e) != nullptr;
      faults = before;
      return e.what();
    }
  };
  std::string joined = piece_ + std::string(line);
  const bool number_goes_on = !piece_.empty() && digits.find(piece_.back()) != std::string_view::npos &&
                              digits.find(line.front()) != std::string_view::npos;
  if (begins && number_goes_on && words_of(joined).size() == words_of(line).size()) {
    end_rows();  // a row of its own, or the rest of one: that cannot be told
    return faults.add_unreadable(fmt::format("line {}: it may continue line {}", number, piece_line_));
  }
  const auto why = begins ? refusal(line, false) : std::string();
  if (!why) return end_rows();
  const bool began_cut = is_cut;
  // A line that begins like a row continues one only within a number.
  if (!piece_.empty() && (!begins || number_goes_on) && !refusal(joined, true)) {
    piece_.clear();
  } else if (begins) {
    end_rows();
    piece_ = line;
    piece_is_cut_ = began_cut;
    piece_line_ = number;
    why_ = *why;
  } else if (line.find_first_not_of("0123456789.e+-NA/ \t") == std::string_view::npos) {
    piece_ = std::move(joined);
  } else {
    count_hidden();
  }
}

void LogReader::finish(Imported& out) {
  end_rows(/*is_log_end=*/true);
  out.faults = faults.text();
  out.has_only_unknown_kinds = faults.are_all_of_unknown_kind();
}

void refuse_line(std::size_t number, const std::string& why) {
  throw UsageError(number == 0 ? why : fmt::format("line {}: {}", number, why));
}

void refuse_cut(std::size_t number, const std::string& why) { throw CutRow(fmt::format("line {}: {}", number, why)); }

void refuse_columns(std::size_t number, std::size_t found, std::size_t expected) {
  if (found < expected) refuse_cut(number, fmt::format("the row is cut; it should have {} columns", expected));
  refuse_line(number, fmt::format("the row has {} columns, but its table's head names {}", found, expected));
}

double number_of(const std::string& word, std::size_t line) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || !std::isfinite(value))
    refuse_line(line, fmt::format("'{}' is no number", word));
  return value;
}

double number_of(const std::string& word, std::size_t decimals, std::size_t line) {
  const bool is_of_digits = word.find_first_not_of("-0123456789.") == std::string::npos;
  if (const std::size_t point = word.find('.');
      is_of_digits && (point == std::string::npos || word.size() - point <= decimals))
    refuse_cut(line, fmt::format("'{}' is cut; it should have {} decimals", word, decimals));
  return number_of(word, line);
}

std::int64_t count_of(const std::string& word, std::size_t line) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value < 0)
    refuse_line(line, fmt::format("'{}' is no count", word));
  return value;
}

}  // namespace gradmeter::importers
