// SPDX-License-Identifier: Apache-2.0
// The tables of collectives that PARAM's comms.py prints: a row begins with a word that names the measurement.
#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "core/format.hpp"
#include "importers/collectives.hpp"
#include "importers/importers.hpp"
#include "importers/rows.hpp"

namespace gradmeter::importers {
namespace {

/// The number after `key`; 0: none on this line.
std::int64_t ranks_after(std::string_view line, std::string_view key, std::size_t number) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return 0;
  const std::string_view rest = line.substr(at + key.size());
  return count_of(std::string(rest.substr(0, rest.find_first_not_of("0123456789"))), number);
}

/// The point that a row's first word names: COMMS-RES-all_reduce-float32-TAG, where TAG is the user's. `joined`: the
/// row was joined from pieces, so only known names are believed.
core::Point named_point(std::string_view word, bool joined, std::int64_t ranks, std::size_t number,
                        const UserFacts& user_facts) {
  const std::string_view whole_word = word;
  word.remove_prefix(std::string_view("COMMS-RES-").size());
  const std::size_t dash = word.find('-');
  if (dash == std::string_view::npos) refuse_line(number, fmt::format("'{}' names no element type", word));
  const std::string_view rest = word.substr(dash + 1), dtype = rest.substr(0, rest.find('-')),
                         tag = rest.substr(std::min(dtype.size() + 1, rest.size()));
  const auto element = element_of(dtype);
  const std::string name(word.substr(0, dash)), type(element ? core::info(*element).name : dtype);
  const auto collective = collective_of(name);
  if (joined && (!collective || !element))
    refuse_line(number, fmt::format("'{}' of pieces is no known collective and type", whole_word));
  core::Point p = collective_point(collective.value_or(name), ranks, 1, user_facts);
  p.factors[core::Factor::dtype] = type;
  // PyTorch has several calls for one collective: all_gather_base is not the plain all_gather.
  for (const std::string_view form : {"base", "single"})
    if (name.ends_with(fmt::format("_{}", form))) add_problem(p, std::string(form));
  if (!tag.empty()) add_problem(p, fmt::format("tag={}", tag));
  return p;
}

/// The units in a table's head: "total-size (B)  nElementsPerRank  Time(us):p50 … AlgBW(GB/s) BusBW(GB/s)".
struct ParamUnits {
  double time_s = 1e-6, algbw = 1e9, busbw = 1e9;  ///< rates in bytes a second
};
ParamUnits param_units(std::string_view head, std::size_t number) {
  const auto units = units_of(head);
  if (units.size() < 4) return {};
  return {.time_s = unit_seconds(units[1], number),
          .algbw = unit_bytes_per_s(units[2], number),
          .busbw = unit_bytes_per_s(units[3], number)};
}

constexpr const char* unknown_table = "a table of other columns";

/// The table that the columns of a head tell; empty: the one of collectives. Other tables use the same names for other
/// things.
std::string other_table(std::string_view head) {
  auto words = words_of(head);
  std::erase(words, "(B)");
  for (std::string& word : words) word = word.substr(0, word.find('('));
  std::vector<std::string> known{"COMMS-RES", "total-size", "nElementsPerRank", "Time", "p75", "p95", "Min", "Max",
                                 "AlgBW",     "BusBW"};
  if (words == known) return "";
  known.emplace_back("TotalTime");
  if (words == known) return "";
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(words, [&](const auto& w) { return w.starts_with(name); });
  };
  return has("COMMS-RES-QUANT")         ? "quantized collectives"
         : has("ping")                  ? "pt2pt"
         : has("nElementsPairPerRank")  ? "pairs of collectives"
         : has("Comp") || has("TotalL") ? "collectives beside computation"
                                        : unknown_table;
}

/// The point of a row; none if it has no time or no bytes. `joined`: the row was joined from pieces.
std::optional<core::Point> param_row(const std::vector<std::string>& words, bool joined, std::size_t number,
                                     std::int64_t ranks, const ParamUnits& unit, const UserFacts& user_facts,
                                     Faults& faults) {
  // total-size, nElementsPerRank, p50, p75, p95, Min, Max, AlgBW, BusBW
  constexpr std::size_t columns = 11, middle = 3, least = 6, most = 7, algbw = 8, busbw = 9;
  if (words.size() != columns) refuse_columns(number, words.size(), columns);
  core::Point p = named_point(words[0], joined, ranks, number, user_facts);
  const std::int64_t size = count_of(words[1], number);
  p.factors[core::Factor::size_bytes] = size;
  if (size == 0) {
    ++faults.without_bytes;
    return std::nullopt;
  }
  p.factors[core::Factor::reduction] = "max";  // p50 to p95 are over ranks, not over iterations
  const auto time = [&](std::size_t column) { return number_of(words[column], number) * unit.time_s; };
  if (!(time(most) > 0)) {
    ++faults.without_time;
    return std::nullopt;
  }
  // The row's rates belong to the median.
  set_time_and_rates(p, time(middle));
  constexpr double digit = 0.001;
  const double algorithm_rate = number_of(words[algbw], number) * unit.algbw,
               bus_rate = number_of(words[busbw], number) * unit.busbw;
  check_bus_factor(p, algorithm_rate, bus_rate, digit * unit.algbw, faults);
  check_rates(p, algorithm_rate, bus_rate, digit * std::max(unit.algbw, unit.busbw), faults);
  check_order(p, time(least), time(middle), time(most), faults);
  set_time_and_rates(p, time(most));
  if (time(least) > 0) p.metrics[core::Metric::ranks_spread] = time(most) / time(least);
  return p;
}

bool is_param(std::string_view log) { return log.find("COMMS-RES") != std::string_view::npos; }

Imported read_param(std::string_view log, const UserFacts& user_facts) {
  Imported out;
  std::int64_t ranks = 0;
  std::string table;  // empty for collectives
  bool is_collective = false;
  LogReader reader(log, param_format.name);
  ParamUnits units;
  reader.each_line([&](std::string_view line, std::size_t number) {
    if (reader.is_of_other_tool(line, number)) return;
    if (const auto in_log = ranks_after(line, "groupSize ", number)) {
      ranks = checked_ranks(in_log, user_facts, number);
      out.begin_run();
    }
    const auto words = words_of(line);
    const bool begins = !words.empty() && words[0].starts_with("COMMS-RES");
    if (begins && (words[0] == "COMMS-RES" || words[0] == "COMMS-RES-QUANT")) {
      reader.end_rows();
      table = other_table(line);
      is_collective = table.empty();
      if (is_collective) units = param_units(line, number);
    } else if (is_collective) {
      reader.add_row(line, number, begins, [&](std::string_view row, bool joined) {
        if (auto p = param_row(words_of(row), joined, number, ranks, units, user_facts, reader.faults))
          out.run().points.push_back(std::move(*p));
      });
    } else if (begins) {
      reader.faults.add_other(table.empty() ? "a table without a head" : table, number,
                              table.empty() || table == unknown_table ? "nobody knows of what" : unknown_kind);
    }
  });
  reader.finish(out);
  for (auto& run : out.runs) run.info.version = "PARAM comms.py";
  out.not_stated = "the spread of times over iterations, whether results were right";
  if (ranks == 0 && user_facts.ranks == 0) out.not_stated += ", the number of ranks (--ranks says it)";
  return out;
}

}  // namespace

const Format param_format{.name = "param",
                          .about = "the tables of collectives that PARAM's comms.py prints",
                          .source = "facebookresearch/param, train/comms/pt/comms.py",
                          .recognises = is_param,
                          .read = read_param};

}  // namespace gradmeter::importers
