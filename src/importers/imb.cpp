#include "core/error.hpp"
#include "core/format.hpp"
#include "importers/importers.hpp"
#include "importers/lines.hpp"

namespace gradmeter::importers {
namespace {

/// The number after "#processes =", which older versions put in parentheses; 0: none on this line.
std::int64_t processes_in(std::string_view line, std::size_t number) {
  constexpr std::string_view key = "#processes =";
  const std::size_t place = line.find(key);
  if (place == std::string_view::npos) return 0;
  const auto words = words_of(line.substr(place + key.size()));
  if (words.empty()) refuse_line(number, "'#processes =' has no number");
  return count_of(words[0], number);
}

}  // namespace

bool is_imb(std::string_view log) {
  return log.find("#repetitions") != std::string_view::npos && log.find("# Benchmarking ") != std::string_view::npos;
}

Imported read_imb(std::string_view log, const Hints& hints) {
  Imported out;
  std::optional<std::string> collective;
  std::vector<std::string> columns;
  std::int64_t ranks = 0;
  Faults faults;
  each_line(log, faults, [&](std::string_view line, std::size_t number) {
    const auto words = words_of(line);
    if (line.starts_with("# Benchmarking ") && words.size() > 2) {
      collective = collective_of(words[2]);
      columns.clear();
      ranks = 0;
      return;
    }
    if (const auto found = processes_in(line, number)) ranks = found;
    if (!words.empty() && words[0] == "#bytes") columns = words;
    if (words.empty() || line.find('#') != std::string_view::npos || columns.empty() || !collective) return;
    if (words[0].find_first_not_of("0123456789") != std::string::npos) return;
    if (words.size() < columns.size())
      refuse_line(number, fmt::format("the row is cut; it should have {} columns", columns.size()));
    const std::int64_t size = count_of(words[0], number);
    if (size == 0) return void(++faults.without_bytes);
    core::Point p = collective_point(*collective, ranks, size, hints);
    // t[usec] of two ranks; else t_min, t_max, t_avg over ranks, of which the slowest rank's is ours.
    const bool over_ranks = columns.size() > 4 && columns[3].starts_with("t_max");
    const auto time = [&](std::size_t column) {
      const auto units = units_of(columns[column]);
      return number_of(words[column], number) * (units.empty() ? 1e-6 : time_unit(units.front(), number));
    };
    const double seconds = time(over_ranks ? 3 : 2);
    if (!(seconds > 0)) return void(++faults.without_time);
    take_parts(p, number);
    set_time(p, seconds);
    p.factors[core::Factor::reduction] = std::string(over_ranks ? "max" : "rank0");
    if (over_ranks) {
      if (time(2) > 0) p.metrics[core::Metric::ranks_spread] = seconds / time(2);
      check_order(p, time(2), time(4), seconds, faults);
    } else if (columns.size() > 3 && is_rate_unit(columns[3])) {
      const double rate = number_of(words[3], number) * rate_unit(columns[3], number);
      check_rates(p, rate, rate, 0.01 * rate_unit(columns[3], number), faults);
    }
    out.run.points.push_back(std::move(p));
  });
  out.faults = faults.text();
  out.run.info.version = "Intel MPI Benchmarks";
  out.silent = "the spread of times over iterations, whether results were right";
  return out;
}

}  // namespace gradmeter::importers
