#include <algorithm>
#include <array>
#include <optional>

#include "core/element.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "importers/importers.hpp"
#include "importers/lines.hpp"

namespace gradmeter::importers {
namespace {

/// Of the columns of a half of a row.
struct HalfUnits {
  double time_s = 1e-6, algbw = 1e9, busbw = 1e9;  ///< rates in bytes a second
};

/// What the lines that begin with "#" say before the rows.
struct Head {
  std::string collective;
  std::int64_t ranks = 0;
  bool per_iteration = false;           ///< four more columns after each half
  std::array<HalfUnits, 2> units = {};  ///< out of place, in place
};

/// "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)". A half may have more columns than these three.
void read_units(std::string_view line, std::size_t number, Head& head) {
  const auto names = units_of(line);
  constexpr std::size_t before = 2, least = 3;  // (B) and (elements); the columns of a half
  if (names.size() < before + least || names[0] != "B") return;
  const std::size_t rest = names.size() - before, width = rest % 2 == 0 && rest >= 2 * least ? rest / 2 : rest;
  for (std::size_t i = 0; i < head.units.size(); ++i) {
    const std::size_t at = before + (width < rest ? i * width : 0);
    head.units.at(i) = {.time_s = time_unit(names[at], number),
                        .algbw = rate_unit(names[at + 1], number),
                        .busbw = rate_unit(names[at + 2], number)};
  }
}

void add_host(const std::string& host, core::RunInfo& info) {
  if (std::find(info.hosts.begin(), info.hosts.end(), host) == info.hosts.end()) info.hosts.push_back(host);
}

void read_head(std::string_view line, std::size_t number, Head& head, core::RunInfo& info) {
  const auto words = words_of(line);
  read_units(line, number, head);
  if (line.starts_with("# Collective test starting:") && words.size() > 4) {
    if (const auto name = collective_of(words[4])) head.collective = *name;
  }
  if (words.size() > 8 && words[0] == "#" && words[1] == "Rank") {
    ++head.ranks;
    const auto on = std::find(words.begin(), words.end(), "on");  // older versions have no group before it
    if (on != words.end() && on + 1 != words.end()) add_host(*(on + 1), info);
    if (const auto place = line.find("] "); place != std::string_view::npos)
      info.gpus.emplace_back(line.substr(place + 2));
  }
  if (line.starts_with("# nccl-tests version") && words.size() > 3)
    info.version = fmt::format("nccl-tests {}", words[3]);
  if (line.starts_with("# Per-Iteration Report")) head.per_iteration = true;
}

/// time, algbw, busbw, #wrong of one half of a row, from `at` on; nothing where it has no time.
std::optional<core::Point> half(const std::vector<std::string>& words, std::size_t at, std::size_t line,
                                const Head& head, bool in_place, const Hints& hints, Faults& faults) {
  const HalfUnits& unit = head.units.at(in_place ? 1 : 0);
  const double seconds = number_of(words[at], line) * unit.time_s;
  const double algbw = number_of(words[at + 1], line) * unit.algbw;
  const double busbw = number_of(words[at + 2], line) * unit.busbw;
  core::Point p = collective_point(head.collective, head.ranks, count_of(words[0], line), hints);
  p.factors[core::Factor::dtype] = std::string(core::info(core::parse_element(words[2])).name);
  if (words[3] != "none") p.factors[core::Factor::op] = words[3];
  p.factors[core::Factor::in_place] = in_place;
  p.factors[core::Factor::algorithm] = std::string("nccl");
  p.factors[core::Factor::device] = std::string("cuda");
  if (words[at + 3] != "N/A") set_wrong(p, number_of(words[at + 3], line));
  if (!(seconds > 0)) {
    ++faults.without_time;
    return std::nullopt;
  }
  p.metrics[core::Metric::time_s] = mean_time(seconds);
  p.metrics[core::Metric::algbw_bytes_per_s] = algbw;
  p.metrics[core::Metric::busbw_bytes_per_s] = busbw;
  constexpr double digit = 0.01;
  check_rates(p, algbw, busbw, digit * std::max(unit.algbw, unit.busbw), faults);
  return p;
}

}  // namespace

bool is_nccl_tests(std::string_view log) {
  return log.find("#wrong") != std::string_view::npos || log.find("# nThread") != std::string_view::npos ||
         log.find("# nccl-tests version") != std::string_view::npos;
}

Imported read_nccl_tests(std::string_view log, const Hints& hints) {
  Imported out;
  Head head{.collective = hints.collective};
  Faults faults;
  bool unchecked = false;
  each_line(log, faults, [&](std::string_view line, std::size_t number) {
    if (line.starts_with('#')) return read_head(line, number, head, out.run.info);
    const auto words = words_of(line);
    if (words.empty() || words[0].find_first_not_of("0123456789") != std::string::npos)
      return;  // what others print between
    const std::size_t width = head.per_iteration ? 8 : 4, first = 5;
    if (words.size() < first + width + 4)
      return faults.add_cut_row(number,
                                "the row is cut; it should have size, count, type, redop, root and both halves");
    faults.add_whole_row();
    if (head.collective.empty()) {
      refuse_line(number,
                  "which collective it is is not said before it (older versions do not); give --collective allreduce");
    }
    unchecked = unchecked || words[first + 3] == "N/A";
    if (count_of(words[0], number) == 0) return void(++faults.without_bytes);
    for (const bool in_place : {false, true}) {
      if (auto p = half(words, first + (in_place ? width : 0), number, head, in_place, hints, faults))
        out.run.points.push_back(std::move(*p));
    }
  });
  out.faults = faults.text();
  out.silent = "the spread of times (each is a mean over iterations)";
  if (unchecked) out.silent += "; whether results were right (run with -c 0)";
  if (head.ranks == 0 && hints.ranks == 0) out.silent += "; the number of ranks (--ranks says it)";
  return out;
}

}  // namespace gradmeter::importers
