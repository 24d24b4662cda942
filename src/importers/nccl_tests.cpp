// The tables of nccl-tests and its like (rccl-tests, mscclpp). A log has a head, a table and a tail for each program
// that wrote to it: the head lists the ranks, the table's head names the columns, which differ between versions. What a
// run measured is known at its end only, since old versions do not name the collective; so a run is held as it was
// read.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "importers/importers.hpp"
#include "importers/lines.hpp"

namespace gradmeter::importers {
namespace {

/// Time, rates and errors in or out of place.
struct Half {
  bool in_place = false;
  double time_s = 1e-6, algbw = 1e9, busbw = 1e9;  ///< units; rates in bytes a second
};

/// A table's head.
struct Columns {
  std::vector<std::string> names;
  std::vector<Half> halves;
  bool per_iteration = false;  ///< more columns after each half
  bool has(std::string_view name) const { return std::ranges::find(names, name) != names.end(); }
  std::size_t place(std::string_view name) const {
    return static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
  }
  bool of_cpu_time() const { return has("cputime"); }  ///< -C: what the calls took, not the operation
  std::size_t first() const { return std::min(place("time"), place("cputime")); }
};

struct RowHalf {
  double seconds, algbw, busbw;
  std::string errors;  ///< empty, N/A: not known
  Half unit;
};
struct Row {
  std::size_t line = 0;
  std::int64_t size = 0;
  std::string type, op;
  std::int64_t root = -1;
  bool of_cpu_time = false;
  bool errors_are_counts = true;  ///< not differences, as in old versions
  std::vector<RowHalf> halves;
};

/// What one program has printed.
struct Run {
  core::RunInfo info;
  std::string collective;  ///< empty: old versions do not say it
  std::size_t ranks_line = 0;
  std::set<std::int64_t> ranks;
  std::map<std::int64_t, std::int64_t> groups;  ///< by number: their ranks
  Columns columns;
  std::vector<Row> rows;
  bool ended = false;
  bool began() const { return !ranks.empty() || !columns.names.empty(); }
};

/// "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)". A half may have more columns than these three.
void read_units(std::string_view line, std::size_t number, Columns& columns) {
  const auto names = units_of(line);
  constexpr std::size_t before = 2, least = 3;  // (B) and (elements); the columns of a half
  if (names.size() < before + least || names[0] != "B") return;
  const std::size_t rest = names.size() - before, width = rest % 2 == 0 && rest >= 2 * least ? rest / 2 : rest;
  for (std::size_t i = 0; i < columns.halves.size(); ++i) {
    const std::size_t at = before + (width < rest ? i * width : 0);
    Half& half = columns.halves[i];
    half.time_s = time_unit(names[at], number);
    half.algbw = rate_unit(names[at + 1], number);
    half.busbw = rate_unit(names[at + 2], number);
  }
}

[[noreturn]] void refuse_worlds(std::size_t number, const std::string& why) {
  refuse_line(number,
              fmt::format("{}: separate worlds printed into this log, so that nobody knows whose a row is; give "
                          "each its own log (and build with MPI=1)",
                          why));
}

/// "#  Rank  3 Group  0 Pid   4711 on     node01 device  3 [0000:43:00] NVIDIA H100 80GB HBM3"; old ones have no group.
void read_rank(const std::vector<std::string>& words, std::string_view line, std::size_t number, Run& run) {
  const std::int64_t rank = count_of(words[2], number);
  if (run.ranks.empty() && rank != 0) refuse_worlds(number, fmt::format("a list of ranks begins with {}", rank));
  if (!run.ranks.insert(rank).second) refuse_worlds(number, fmt::format("rank {} is there twice", rank));
  run.ranks_line = number;
  ++run.groups[words[3] == "Group" ? count_of(words[4], number) : 0];
  if (const auto on = std::ranges::find(words, "on"); words.end() - on > 1)
    if (const std::string& host = *(on + 1); std::ranges::find(run.info.hosts, host) == run.info.hosts.end())
      run.info.hosts.push_back(host);
  if (const auto place = line.find("] "); place != std::string_view::npos)
    run.info.gpus.emplace_back(line.substr(place + 2));
}

void read_columns(const std::vector<std::string>& words, Columns& columns) {
  columns.names.assign(words.begin() + 1, words.end());
  const auto times = std::ranges::count_if(columns.names, [](const auto& n) { return n == "time" || n == "cputime"; });
  if (static_cast<std::size_t>(times) == columns.halves.size()) return;
  columns.halves = {{.in_place = false}};  // the line above is lost
  if (times > 1) columns.halves.push_back({.in_place = true});
}

/// "#    out-of-place    in-place": which halves there are, in their order.
void read_halves(std::string_view line, Columns& columns) {
  const std::size_t out = line.find("out-of-place"), in = line.find("in-place");
  if (out == std::string_view::npos && in == std::string_view::npos) return;
  columns.halves.clear();
  if (out < in) columns.halves.push_back({.in_place = false});
  if (in != std::string_view::npos) columns.halves.push_back({.in_place = true});
  if (out > in && out != std::string_view::npos) columns.halves.push_back({.in_place = false});
}

void read_head(std::string_view line, std::size_t number, Run& run) {
  const auto words = words_of(line);
  read_halves(line, run.columns);
  read_units(line, number, run.columns);
  if (line.starts_with("# Collective test starting:") && words.size() > 4) run.collective = nccl_kind(words[4]);
  if (words.size() > 8 && words[1] == "Rank") read_rank(words, line, number, run);
  if (words.size() > 3 && words[1] == "size" && words[2] == "count") {
    if (!run.columns.names.empty()) refuse_worlds(number, "a run's table has two heads");
    read_columns(words, run.columns);
    if (!run.collective.empty() && !run.columns.has("root"))
      refuse_worlds(number, "a program that says its name has columns of older ones, which do not");
  }
  if (line.starts_with("# nccl-tests version") && words.size() > 3)
    run.info.version = fmt::format("nccl-tests {}", words[3]);
  if (line.starts_with("# Per-Iteration Report")) run.columns.per_iteration = true;
  if (line.starts_with("# Avg bus bandwidth") && std::exchange(run.ended, true))
    refuse_worlds(number, "a second run ends here, but only one began");
}

/// Whether a line begins the head of another run than the one that is being read.
bool begins_run(std::string_view line, const Run& run) {
  constexpr std::array<std::string_view, 4> firsts{"# nccl-tests version", "# Collective test starting", "# nThread",
                                                   "# Using devices"};
  if (std::ranges::any_of(firsts, [&](auto first) { return line.starts_with(first); })) return run.began();
  return !run.columns.names.empty() && words_of(line).size() > 8 && words_of(line)[1] == "Rank";
}

/// Errors: UsageError for what is no row of this table.
Row row_of(std::string_view line, bool joined, std::size_t number, const Columns& columns) {
  const auto words = words_of(line);
  // The column of redop is blank where old versions have no operation.
  const std::size_t op = columns.place("redop"),
                    blank = !joined && op < words.size() && words.size() + 1 == columns.names.size() &&
                                    words[op].find_first_not_of("0123456789.") == std::string::npos
                                ? 1
                                : 0;
  const std::size_t first = columns.first() - blank, halves = columns.halves.size();
  const std::size_t width = words.size() > first ? (words.size() - first) / halves : 0;
  constexpr std::size_t least = 3;
  if (width < least || first + halves * width != words.size() ||
      (!columns.per_iteration && words.size() + blank != columns.names.size()))
    refuse_line(number, fmt::format("the row is cut; it should have {} columns", columns.names.size()));
  const auto cell = [&](std::string_view name) { return words[columns.place(name)]; };
  Row row{.line = number, .size = count_of(words[0], number), .type = {}, .op = {}, .halves = {}};
  count_of(words[1], number);
  if (columns.has("type")) row.type = nccl_type(cell("type"), number);
  if (columns.has("redop") && blank == 0 && cell("redop") != "none") {
    static constexpr std::array<std::string_view, 6> known{"sum", "prod", "max", "min", "avg", "mulsum"};
    row.op = cell("redop");
    if (std::ranges::find(known, row.op) == known.end())
      refuse_line(number, fmt::format("'{}' is no operation of nccl-tests", row.op));
  }
  if (columns.has("root"))
    row.root = static_cast<std::int64_t>(number_of(words[columns.place("root") - blank], number));
  row.of_cpu_time = columns.of_cpu_time();
  row.errors_are_counts = !columns.has("error");
  for (std::size_t i = 0; i < halves; ++i) {
    const std::size_t at = first + i * width;
    const Half& unit = columns.halves[i];
    RowHalf half{.seconds = number_of(words[at], number) * unit.time_s,
                 .algbw = number_of(words[at + 1], number) * unit.algbw,
                 .busbw = number_of(words[at + 2], number) * unit.busbw,
                 .errors = width > least ? words[at + least] : "",
                 .unit = unit};
    if (half.errors.ends_with('*')) half.errors.pop_back();  // beyond the threshold, as its number says too
    if (!half.errors.empty() && half.errors != "N/A") number_of(half.errors, number);
    constexpr std::size_t error_digits = 5;  // 3e-07
    if (!row.errors_are_counts && half.errors != "N/A" && half.errors.size() < error_digits)
      refuse_line(number, fmt::format("'{}' is cut; an error is printed like 3e-07", half.errors));
    constexpr double rounding = 0.02, digit = 0.02;
    const double rate = static_cast<double>(row.size) / half.seconds;
    constexpr double most = 2;  // busbw over algbw
    if (joined && !(std::abs(half.algbw - rate) <= rounding * rate + digit * unit.algbw &&
                    half.busbw <= (most + rounding) * rate + digit * unit.busbw))
      refuse_line(number, "the columns of its pieces contradict each other");
    row.halves.push_back(std::move(half));
  }
  return row;
}

/// Errors of old versions are the largest difference, for which they have these bounds.
double allowed_error(const std::string& type) {
  return type == "fp16" || type == "bf16" ? 1e-2 : type == "fp32" ? 1e-5 : type == "fp64" ? 1e-12 : 0;
}

/// busbw over algbw, where they have three digits; 0: nowhere.
double bus_ratio(const Run& run) {
  std::vector<double> ratios;
  for (const Row& row : run.rows)
    for (const RowHalf& half : row.halves)
      if (half.algbw >= half.unit.algbw) ratios.push_back(half.busbw / half.algbw);
  if (ratios.empty()) return 0;
  std::ranges::nth_element(ratios, ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2));
  return ratios[ratios.size() / 2];
}

bool is_near(double ratio, std::optional<double> factor) {
  constexpr double rounding = 0.02;
  return factor && std::abs(ratio - *factor) <= rounding * *factor;
}

/// The one collective that has such columns and such a bus bandwidth; empty: none, or several.
std::string told_by_columns(const Run& run, std::int64_t ranks) {
  const double ratio = bus_ratio(run);
  const Row& row = run.rows.front();
  std::vector<std::string> candidates;
  if (!row.op.empty()) {
    candidates =
        row.root >= 0 ? std::vector<std::string>{"reduce"} : std::vector<std::string>{"allreduce", "reduce_scatter"};
  } else if (!row.errors_are_counts && !run.columns.has("redop")) {
    candidates = {row.root >= 0 ? "broadcast" : "all_gather"};
  } else if (!run.columns.has("redop") && ratio > 1.1) {
    candidates = {"allreduce"};
  }
  if (ranks == 0 && ratio > 1.1 && std::ranges::find(candidates, "allreduce") != candidates.end()) return "allreduce";
  std::erase_if(candidates, [&](const std::string& c) { return !is_near(ratio, bus_factor(c, ranks)); });
  return candidates.size() == 1 ? candidates[0] : "";
}

core::Point point_of(const Row& row, const RowHalf& half, core::Point p, std::int64_t ranks, Faults& faults) {
  p.factors[core::Factor::size_bytes] = row.size;
  if (!row.type.empty()) p.factors[core::Factor::dtype] = row.type;
  if (!row.op.empty()) p.factors[core::Factor::op] = row.op;
  if (row.root > 0) add_problem(p, fmt::format("root={}", row.root));
  if (row.of_cpu_time) add_problem(p, "time=cpu");
  p.factors[core::Factor::in_place] = half.unit.in_place;
  p.metrics[core::Metric::time_s] = mean_time(half.seconds);
  p.metrics[core::Metric::algbw_bytes_per_s] = half.algbw;
  p.metrics[core::Metric::busbw_bytes_per_s] = half.busbw;
  if (!half.errors.empty() && half.errors != "N/A") {
    const double errors = number_of(half.errors, row.line);
    if (row.errors_are_counts) {
      set_wrong(p, errors);
    } else if (errors <= allowed_error(row.type)) {
      set_wrong(p, 0);
    } else {
      p.status = core::Status::wrong;
      p.reason =
          fmt::format("differs by {} from the right result; {} is allowed", half.errors, allowed_error(row.type));
    }
  }
  // What separate worlds printed into one log may have another head's ranks.
  const std::string collective = core::to_text(p.factors[core::Factor::collective]);
  const auto factor = bus_factor(collective, ranks);
  if ((collective == "allreduce" || collective == "all_gather" || collective == "reduce_scatter") && factor &&
      half.algbw >= half.unit.algbw && !is_near(half.busbw / half.algbw, factor))
    mistrust(p,
             fmt::format("busbw is {:.3g} times algbw, but {:.3g} times for {} ranks", half.busbw / half.algbw, *factor,
                         ranks),
             faults);
  constexpr double digit = 0.01;
  check_rates(p, half.algbw, half.busbw, digit * std::max(half.unit.algbw, half.unit.busbw), faults);
  return p;
}

/// Ranks that reduce with each other: those of a group, all of which are equally large.
std::int64_t group_size(const Run& run) {
  if (run.groups.empty()) return 0;
  if (run.groups.size() == 1) return *run.ranks.rbegin() + 1;  // a line of the list may be torn
  const std::int64_t size = run.groups.begin()->second;
  for (const auto& [group, ranks] : run.groups)
    if (ranks != size)
      refuse_line(run.ranks_line, fmt::format("group {} has {} ranks and others {}, so that a row has no one number of "
                                              "ranks; run groups of one size",
                                              group, ranks, size));
  return size;
}

/// What the whole log says beside its rows.
struct Silent {
  bool unchecked = false, ranks = false;
  std::string inferred;  ///< the collective
};

void add_run(const Run& run, const Hints& hints, core::Run& out, Faults& faults, Silent& silent) {
  out.info = run.info;
  if (run.rows.empty()) return;
  const std::int64_t said = group_size(run), ranks = ranks_of(said, hints, run.ranks_line);
  const std::size_t line = run.rows.front().line;
  std::string collective = kind_of(run.collective, hints, line);
  if (collective.empty()) {
    collective = told_by_columns(run, ranks);
    if (collective.empty() && said == 0) collective = told_by_columns(run, 0);  // which --ranks contradicts
    silent.inferred = collective;
  }
  if (collective.empty())
    refuse_line(line,
                "which collective it is is not said before it (older versions do not); give --collective allreduce");
  const double ratio = bus_ratio(run);
  constexpr double most = 1.1;  // of others than an all-reduce, with rounding
  const auto factor = ranks > 0 ? bus_factor(collective, ranks) : std::nullopt;
  if (said == 0 && ratio > 0 && (factor ? !is_near(ratio, factor) : ratio > most && collective != "allreduce"))
    refuse_line(
        line, fmt::format("busbw is {:.3g} times algbw, but {:.3g} times for {}{}; check --ranks and --collective",
                          ratio, factor.value_or(1), collective, ranks > 0 ? fmt::format(" of {} ranks", ranks) : ""));
  silent.ranks = silent.ranks || ranks == 0;
  core::Point common = collective_point(collective, ranks, 1, hints);
  common.factors[core::Factor::algorithm] = std::string("nccl");
  common.factors[core::Factor::device] = std::string("cuda");
  if (run.groups.size() > 1) add_problem(common, fmt::format("groups={}", run.groups.size()));
  for (const Row& row : run.rows) {
    if (row.size == 0) {
      ++faults.without_bytes;
      continue;
    }
    for (const RowHalf& half : row.halves) {
      silent.unchecked = silent.unchecked || half.errors == "N/A";
      if (half.seconds > 0) {
        out.points.push_back(point_of(row, half, common, ranks, faults));
      } else {
        ++faults.without_time;
      }
    }
  }
}

}  // namespace

bool is_nccl_tests(std::string_view log) {
  for (const std::string_view mark : {"#wrong", "# nThread", "# nccl-tests version"})
    if (log.find(mark) != std::string_view::npos) return true;
  const auto words = words_of(log.substr(0, log.find('\n')));  // rows without their head, which are refused
  constexpr std::size_t columns = 13;
  return words.size() == columns && is_count(words[0]) && is_count(words[1]) && !is_count(words[2]);
}

Imported read_nccl_tests(std::string_view log, const Hints& hints) {
  Imported out;
  Run run;
  Faults faults;
  Rows rows(faults);
  Silent silent;
  const auto end_run = [&] {
    out.begin_run();
    add_run(run, hints, out.run(), faults, silent);
    run = {};
  };
  each_line(log, faults, [&](std::string_view line, std::size_t number) {
    if (line.starts_with('#')) {
      if (line.starts_with("# ")) rows.end();
      if (begins_run(line, run)) end_run();
      return read_head(line, number, run);
    }
    if (run.columns.halves.empty() || run.columns.names.empty()) {
      if (words_of(line).size() > 10 && begins_with_count(line))
        refuse_line(number,
                    "a row stands before the table's head, which says what its columns are, of which collective "
                    "and how many ranks; give the whole log");
      return;
    }
    const std::size_t before = run.rows.size();
    rows.add(line, number, begins_with_count(line),
             [&](std::string_view row, bool joined) { run.rows.push_back(row_of(row, joined, number, run.columns)); });
    if (run.ended && run.rows.size() > before) refuse_worlds(number, "a row stands after its run's end");
  });
  rows.end(true);
  end_run();
  out.faults = faults.text();
  out.silent = "the spread of times (each is a mean over iterations)";
  if (silent.unchecked) out.silent += "; whether results were right (run with -c 0)";
  if (silent.ranks) out.silent += "; the number of ranks (--ranks says it)";
  if (!silent.inferred.empty())
    out.silent += fmt::format("; its collective ({} by its columns and bus bandwidth)", silent.inferred);
  return out;
}

}  // namespace gradmeter::importers
