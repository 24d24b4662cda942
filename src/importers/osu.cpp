#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "importers/importers.hpp"
#include "importers/lines.hpp"

namespace gradmeter::importers {
namespace {

/// "# OSU MPI Allreduce Latency Test v7.3": words between the library and Latency or Bandwidth.
std::string collective_in(std::string_view title) {
  const auto words = words_of(title);
  std::string name;
  for (std::size_t i = 3; i < words.size(); ++i) {
    if (words[i] == "Latency" || words[i] == "Bandwidth" || words[i] == "Bi-Directional") break;
    name += words[i];
  }
  return name.empty() ? "ping_pong" : collective_of(name).value_or(core::lower(name));
}

/// What the lines that begin with "#" say of the rows below.
struct OsuHead {
  std::string collective;
  std::string dtype;           ///< empty: not said, as before version 7
  std::int64_t ranks = 0;      ///< 0: not said
  std::size_t validation = 0;  ///< place of its column, which -c adds; 0: none
  double unit = 1e-6;          ///< of times [s], or of rates [B/s]; DeepBench's copy has milliseconds
  bool is_bandwidth = false, with_extremes = false, has_columns = false;
};

/// MPI_CHAR of "# Datatype: MPI_CHAR." as ours; empty: one that ours has not.
std::string osu_element(std::string_view line) {
  const auto words = words_of(line);
  std::string_view name = words.size() > 2 ? words[2] : std::string_view{};
  if (name.ends_with('.')) name.remove_suffix(1);
  return name == "MPI_CHAR" ? "int8" : name == "MPI_INT" ? "int32" : name == "MPI_FLOAT" ? "fp32" : "";
}

void read_osu_head(std::string_view line, std::size_t number, OsuHead& head, core::RunInfo& info) {
  const auto words = words_of(line);
  if (line.starts_with("# OSU ")) {
    head = {.collective = collective_in(line), .dtype = {}};
    info.version = std::string(line.substr(2));
  }
  if (line.starts_with("# Datatype:")) head.dtype = osu_element(line);
  if (line.starts_with("# Number of Ranks") && words.size() > 4) head.ranks = count_of(words[4], number);
  if (!line.starts_with("# Size")) return;
  head.has_columns = true;
  // mbw_mr has its unit without brackets.
  const auto units = units_of(line);
  const auto bare = std::ranges::find_if(words, is_rate_unit);
  const std::string unit = !units.empty() ? units.front() : bare != words.end() ? *bare : "us";
  head.is_bandwidth = is_rate_unit(unit);
  head.unit = head.is_bandwidth ? rate_unit(unit, number) : time_unit(unit, number);
  head.with_extremes = line.find("Min Latency") != std::string_view::npos;
  // Columns are a size and a number, then min, max and iterations; Validation stands last.
  if (line.find("Validation") != std::string_view::npos) head.validation = head.with_extremes ? 5 : 2;
}

/// Nothing where it has no time or is cut.
std::optional<core::Point> osu_row(const std::vector<std::string>& words, std::size_t number, const OsuHead& head,
                                   const Hints& hints, Faults& faults) {
  const std::size_t columns = std::max<std::size_t>(head.with_extremes ? 4 : 2, head.validation + 1);
  if (words.size() < columns) {
    faults.add_cut_row(number, fmt::format("the row is cut; it should have {} columns", columns));
    return std::nullopt;
  }
  faults.add_whole_row();
  const std::string& collective = hints.collective.empty() ? head.collective : hints.collective;
  core::Point p = collective_point(collective,
                                   head.ranks > 0              ? head.ranks
                                   : collective == "ping_pong" ? 2
                                                               : 0,
                                   count_of(words[0], number), hints);
  take_parts(p, number);
  if (!head.dtype.empty()) p.factors[core::Factor::dtype] = head.dtype;
  const std::size_t at = head.with_extremes ? 3 : 1;  // the slowest rank's, where it is said
  const double value = number_of(words[at], number);
  if (!(value > 0)) {
    ++faults.without_time;
    return std::nullopt;
  }
  if (!head.is_bandwidth) p.factors[core::Factor::reduction] = std::string(head.with_extremes ? "max" : "avg");
  set_time(p, head.is_bandwidth ? number_of(words[0], number) / (value * head.unit) : value * head.unit);
  if (head.with_extremes) {
    const double least = number_of(words[2], number);
    if (least > 0) p.metrics[core::Metric::ranks_spread] = value / least;
    check_order(p, least * head.unit, number_of(words[1], number) * head.unit, value * head.unit, faults);
  }
  if (head.validation == 0) return p;
  if (words[head.validation] == "Pass") {
    set_wrong(p, 0);
  } else {
    p.status = core::Status::wrong;
    p.reason = "the benchmark's own validation failed";
  }
  return p;
}

}  // namespace

bool is_osu(std::string_view log) { return log.find("# OSU ") != std::string_view::npos; }

Imported read_osu(std::string_view log, const Hints& hints) {
  Imported out;
  OsuHead head;
  Faults faults;
  each_line(log, faults, [&](std::string_view line, std::size_t number) {
    if (line.starts_with('#')) return read_osu_head(line, number, head, out.run.info);
    const auto words = words_of(line);
    if (words.empty() || words[0].find_first_not_of("0123456789") != std::string::npos) return;
    if (!head.has_columns) refuse_line(number, "a row stands before '# Size', which says what its columns are");
    if (count_of(words[0], number) == 0) return void(++faults.without_bytes);
    if (auto p = osu_row(words, number, head, hints, faults)) out.run.points.push_back(std::move(*p));
  });
  out.faults = faults.text();
  out.silent = "the spread of times (each is a mean)";
  if (head.validation == 0) out.silent += ", whether results were right (run with -c)";
  if (hints.ranks == 0 && head.ranks == 0 && head.collective != "ping_pong")
    out.silent += ", the number of ranks (--ranks says it)";
  return out;
}

}  // namespace gradmeter::importers
