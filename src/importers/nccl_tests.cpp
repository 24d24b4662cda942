// SPDX-License-Identifier: Apache-2.0
// The tables of nccl-tests and its like (rccl-tests, mscclpp). A log has a head, a table and a tail for each program
// that wrote to it: the head lists the ranks, the table's head names the columns, which differ between versions. Old
// versions do not name the collective, so what a run measured is known only at its end; until then its rows are kept as
// they were read.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "importers/collectives.hpp"
#include "importers/importers.hpp"
#include "importers/rows.hpp"

namespace gradmeter::importers {
namespace {

using core::UsageError;

/// One half of a table, in place or out of place: columns of time, rates and errors.
struct Half {
  bool in_place = false;
  double time_s = 1e-6, algbw = 1e9, busbw = 1e9;  ///< the units of the columns, in seconds and bytes a second
};

/// A table's head.
struct Columns {
  std::vector<std::string> names;
  std::vector<Half> halves;
  bool has(std::string_view name) const { return std::ranges::find(names, name) != names.end(); }
  std::size_t place(std::string_view name) const {
    return static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
  }
  bool of_cpu_time() const { return has("cputime"); }  ///< -C: times of calls, not of the operation
  /// The number of a row's words: a time stamp (-S) is one column of two words, day and time.
  std::size_t words() const { return names.size() + (has("timestamp") ? 1 : 0); }
};

/// The numbers of a half of the table in one row.
struct Measured {
  double seconds, algbw, busbw;
  std::string errors;  ///< empty, N/A: not known
  Half half_units;     ///< from the table's head above the row
};
/// A row of the table.
struct Row {
  std::size_t line = 0;
  std::int64_t size = 0;
  std::string type, op;
  std::int64_t root = -1;
  bool of_cpu_time = false;
  bool errors_are_counts = true;  ///< false: an old version, whose errors are differences from the right result
  std::vector<Measured> halves;
};

/// The output of one program.
struct Run {
  core::RunInfo info = unknown_run();
  std::int64_t ranks_of_process = 0;                 ///< threads times GPUs; 0: not given
  std::int64_t graph = 0, calls = 1, unaligned = 0;  ///< the settings graph, agg iters and unalign
  /// The wait or barrier after each call, or the barrier after each of its repetitions, which is not in the time;
  /// empty: none.
  std::string blocking;
  std::string collective;  ///< empty: old versions do not name it
  std::size_t ranks_line = 0;
  std::map<std::int64_t, std::int64_t> group_by_rank;  ///< the group of each rank
  bool list_is_cut = false;                            ///< a process prints at most 2048 bytes of its list
  Columns columns;
  std::vector<Row> rows;
  bool ended = false;
  bool began() const { return !group_by_rank.empty() || !columns.names.empty(); }
};

/// "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)". A half may have more columns than these three.
void read_units(std::string_view line, std::size_t number, Columns& columns) {
  const auto units = units_of(line);
  constexpr std::size_t before = 2, least = 3;  // (B) and (elements); the columns of a half
  if (units.size() < before + least || units[0] != "B") return;
  const std::size_t rest = units.size() - before, width = rest % 2 == 0 && rest >= 2 * least ? rest / 2 : rest;
  for (std::size_t i = 0; i < columns.halves.size(); ++i) {
    const std::size_t at = before + (width < rest ? i * width : 0);
    Half& half = columns.halves[i];
    half.time_s = unit_seconds(units[at], number);
    half.algbw = unit_bytes_per_s(units[at + 1], number);
    half.busbw = unit_bytes_per_s(units[at + 2], number);
  }
}

[[noreturn]] void refuse_worlds(std::size_t number, const std::string& why) {
  refuse_line(number,
              fmt::format("{}: separate worlds printed into this log, so that nobody knows whose a row is; give "
                          "each its own log (and build with MPI=1)",
                          why));
}

/// "#  Rank  3 Group  0 Pid   4711 on     node01 device  3 [0000:43:00] NVIDIA H100 80GB HBM3"; old versions print no
/// group.
void read_rank(const std::vector<std::string>& words, std::string_view line, std::size_t number, Run& run) {
  const std::int64_t rank = count_of(words[2], number);
  if (constexpr std::int64_t most = 1 << 24; rank > most) refuse_line(number, fmt::format("{} is no rank", rank));
  if (run.group_by_rank.empty() && rank != 0)
    refuse_worlds(number, fmt::format("a list of ranks begins with {}", rank));
  const std::int64_t group = words[3] == "Group" ? count_of(words[4], number) : 0;
  if (!run.group_by_rank.emplace(rank, group).second)
    refuse_worlds(number, fmt::format("rank {} is there twice", rank));
  run.ranks_line = number;
  if (const auto on = std::ranges::find(words, "on"); words.end() - on > 1)
    if (const std::string& host = *(on + 1); std::ranges::find(run.info.hosts, host) == run.info.hosts.end())
      run.info.hosts.push_back(host);
  // A name that is cut would look like another kind of GPU.
  if (const auto place = line.find("] "); place != std::string_view::npos && !line.ends_with("..."))
    run.info.gpus.emplace_back(line.substr(place + 2));
}

void read_columns(const std::vector<std::string>& words, Columns& columns) {
  columns.names.assign(words.begin() + 1, words.end());
  const auto times = std::ranges::count_if(columns.names, [](const auto& n) { return n == "time" || n == "cputime"; });
  if (static_cast<std::size_t>(times) == columns.halves.size()) return;
  columns.halves = {{.in_place = false}};  // the line that names the halves is lost
  if (times > 1) columns.halves.push_back({.in_place = true});
}

/// Reads which halves there are, in their order: "#    out-of-place    in-place".
void read_halves(std::string_view line, Columns& columns) {
  const std::size_t out = line.find("out-of-place"), in = line.find("in-place");
  if (out == std::string_view::npos && in == std::string_view::npos) return;
  columns.halves.clear();
  if (out < in) columns.halves.push_back({.in_place = false});
  if (in != std::string_view::npos) columns.halves.push_back({.in_place = true});
  if (out > in && out != std::string_view::npos) columns.halves.push_back({.in_place = false});
}

/// "# nThread 1 nGpus 8 minBytes 8 ... agg iters: 1 validation: 1 graph: 0 unalign: 0"; old versions have a colon after
/// each name.
void read_settings(const std::vector<std::string>& words, std::size_t number, Run& run) {
  constexpr std::int64_t most = 1 << 24;
  const auto after = [&](std::string_view name, std::int64_t fallback) {
    const auto found =
        std::ranges::find_if(words, [&](const auto& w) { return w == name || w == std::string(name) + ":"; });
    return words.end() - found > 1 ? count_of(*(found + 1), number) : fallback;
  };
  const std::int64_t threads = after("nThread", 0), gpus = after("nGpus", 0);
  if (threads > most || gpus > most || threads * gpus > most)
    refuse_line(number, "no process has so many threads and GPUs");
  const auto calls = std::ranges::search(words, std::array<std::string_view, 2>{"agg", "iters:"});
  run.ranks_of_process = threads * gpus;
  run.graph = after("graph", 0);
  run.calls = words.end() - calls.begin() > 2 ? count_of(*(calls.begin() + 2), number) : 1;
  run.unaligned = after("unalign", 0);
  run.blocking = {};
}

/// "wait and barrier after each inner iteration (-m)", "wait after each inner iteration (-m), no barrier", "wait and
/// barrier after each outer iteration (-n); time excludes barrier".
std::string blocking_of(std::string_view line) {
  const auto says = [&](std::string_view words) { return line.find(words) != std::string_view::npos; };
  if (!says("barrier") || says("no barrier")) return "wait";
  return says("outer") ? "outer-barrier" : "barrier";
}

void read_head(std::string_view line, std::size_t number, Run& run) {
  const auto words = words_of(line);
  if (line.starts_with("# nThread")) read_settings(words, number, run);
  if (line.starts_with("# Blocking Enabled")) run.blocking = blocking_of(line);
  // "..." before the columns ends a list of ranks that is cut.
  if (line.ends_with("...") && run.columns.names.empty() && !run.group_by_rank.empty()) run.list_is_cut = true;
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
  if (line.starts_with("# nccl-tests version") && words.size() > 3) {
    run.info.version = fmt::format("nccl-tests {}", words[3]);
    constexpr std::string_view library = "nccl-library=";
    for (const std::string& word : words)
      if (word.starts_with(library))
        run.info.libraries["NCCL"] = nccl_version(count_of(word.substr(library.size()), number));
  }
  if (line.starts_with("# Avg bus bandwidth") && std::exchange(run.ended, true))
    refuse_worlds(number, "a second run ends here, but only one began");
}

/// True if a line begins the head of another run than the one that is being read.
bool begins_run(std::string_view line, const Run& run) {
  constexpr std::array<std::string_view, 4> firsts{"# nccl-tests version", "# Collective test starting", "# nThread",
                                                   "# Using devices"};
  if (std::ranges::any_of(firsts, [&](auto first) { return line.starts_with(first); })) return run.began();
  return !run.columns.names.empty() && words_of(line).size() > 8 && words_of(line)[1] == "Rank";
}

/// Reads a half of a row; words[0] is its time. `joined`: the row was joined from pieces, so its columns must agree.
/// Errors: those of `row_of`.
Measured read_half(std::span<const std::string> words, bool has_errors, bool joined, const Half& half_units,
                   const Row& row) {
  Measured out{.seconds = number_of(words[0], row.line) * half_units.time_s,
               .algbw = number_of(words[1], row.line) * half_units.algbw,
               .busbw = number_of(words[2], row.line) * half_units.busbw,
               .errors = has_errors ? words[3] : "",
               .half_units = half_units};
  if (out.errors.ends_with('*')) out.errors.pop_back();  // '*' says that it is beyond the threshold, as its number does
  if (!out.errors.empty() && out.errors != "N/A") number_of(out.errors, row.line);
  constexpr std::size_t error_digits = 5;  // 3e-07
  if (!row.errors_are_counts && has_errors && out.errors != "N/A" && out.errors.size() < error_digits)
    refuse_cut(row.line, fmt::format("'{}' is cut; an error is printed like 3e-07", out.errors));
  constexpr double rounding = 0.02, digit = 0.02;
  const double rate = static_cast<double>(row.size) / out.seconds;
  constexpr double most = 2;  // the largest ratio of busbw to algbw
  if (joined && !(std::abs(out.algbw - rate) <= rounding * rate + digit * half_units.algbw &&
                  out.busbw <= (most + rounding) * rate + digit * half_units.busbw))
    refuse_line(row.line, "the columns of its pieces contradict each other");
  return out;
}

/// Errors: UsageError if the line is no row of this table.
Row row_of(std::string_view line, bool joined, std::size_t number, const Columns& columns) {
  const auto words = words_of(line);
  // The column of redop is blank where old versions have no operation.
  const std::size_t op_place = columns.place("redop"),
                    blank_columns = !joined && op_place < words.size() && words.size() + 1 == columns.words() &&
                                            words[op_place].find_first_not_of("-0123456789.") == std::string::npos
                                        ? 1
                                        : 0;
  if (words.size() + blank_columns != columns.words())
    refuse_columns(number, words.size() + blank_columns, columns.words());
  const auto cell = [&](std::string_view name) { return words[columns.place(name)]; };
  Row row{.line = number, .size = count_of(words[0], number), .type = {}, .op = {}, .halves = {}};
  count_of(words[1], number);
  if (columns.has("type")) row.type = nccl_type(cell("type"), number);
  if (columns.has("redop") && blank_columns == 0 && cell("redop") != "none") {
    static constexpr std::array<std::string_view, 6> known{"sum", "prod", "max", "min", "avg", "mulsum"};
    row.op = cell("redop");
    if (std::ranges::find(known, row.op) == known.end())
      refuse_line(number, fmt::format("'{}' is no operation of nccl-tests", row.op));
  }
  if (columns.has("root"))
    row.root = static_cast<std::int64_t>(number_of(words[columns.place("root") - blank_columns], number));
  row.of_cpu_time = columns.of_cpu_time();
  row.errors_are_counts = !columns.has("error");
  const auto named = [&](std::size_t place, std::string_view name) {
    return place < columns.names.size() && columns.names[place] == name;
  };
  std::size_t column = 0;
  for (const Half& half_units : columns.halves) {
    while (column < columns.names.size() && !named(column, "time") && !named(column, "cputime")) ++column;
    if (!named(column + 1, "algbw") || !named(column + 2, "busbw"))
      refuse_line(number, "the table's head does not name a time, algbw and busbw for each of its halves");
    const std::size_t at = column - blank_columns;
    column += 3;
    const bool has_errors = named(column, "#wrong") || named(column, "error");
    row.halves.push_back(read_half(std::span(words).subspan(at), has_errors, joined, half_units, row));
  }
  return row;
}

/// Errors of old versions are the largest difference, for which they have these bounds.
double allowed_error(const std::string& type) {
  return type == "fp16" || type == "bf16" ? 1e-2 : type == "fp32" ? 1e-5 : type == "fp64" ? 1e-12 : 0;
}

/// The median ratio of busbw to algbw over rows whose rates have three digits; 0: there are none.
double bus_ratio(const Run& run) {
  std::vector<double> ratios;
  for (const Row& row : run.rows)
    for (const Measured& m : row.halves)
      if (m.algbw >= m.half_units.algbw) ratios.push_back(m.busbw / m.algbw);
  if (ratios.empty()) return 0;
  std::ranges::nth_element(ratios, ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2));
  return ratios[ratios.size() / 2];
}

/// The only collective that fits the columns and the ratio of bus bandwidth; empty: none fits, or several do.
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

core::Point point_of(const Row& row, const Measured& m, core::Point p, Faults& faults) {
  p.factors[core::Factor::size_bytes] = row.size;
  if (!row.type.empty()) p.factors[core::Factor::dtype] = row.type;
  if (!row.op.empty()) p.factors[core::Factor::op] = row.op;
  if (row.root > 0) add_problem(p, fmt::format("root={}", row.root));
  if (row.of_cpu_time) add_problem(p, "time=cpu");
  p.factors[core::Factor::in_place] = m.half_units.in_place;
  p.metrics[core::Metric::time_s] = summary_of_mean(m.seconds);
  if (!m.errors.empty() && m.errors != "N/A") {
    const double errors = number_of(m.errors, row.line);
    if (row.errors_are_counts) {
      set_wrong(p, errors);
    } else if (errors <= allowed_error(row.type)) {
      set_wrong(p, 0);
    } else {
      p.status = core::Status::wrong;
      p.reason = fmt::format("differs by {} from the right result; {} is allowed", m.errors, allowed_error(row.type));
    }
  }
  constexpr double digit = 0.01;
  // If separate worlds printed into one log, the ranks may be those of another head.
  check_bus_factor(p, m.algbw, m.busbw, digit * m.half_units.algbw, faults);
  // With -C the rates are still those of the whole call, not of the time in the row.
  if (row.of_cpu_time) return p;
  p.metrics[core::Metric::algbw_bytes_per_s] = m.algbw;
  p.metrics[core::Metric::busbw_bytes_per_s] = m.busbw;
  check_rates(p, m.algbw, m.busbw, digit * std::max(m.half_units.algbw, m.half_units.busbw), faults);
  return p;
}

/// True if the list lacks a rank, so that it may lack more at its end.
bool has_gap(const Run& run) {
  return !run.list_is_cut && !run.group_by_rank.empty() &&
         run.group_by_rank.size() < static_cast<std::size_t>(run.group_by_rank.rbegin()->first + 1);
}

std::size_t number_of_groups(const Run& run) {
  std::set<std::int64_t> groups;
  for (const auto& [rank, group] : run.group_by_rank) groups.insert(group);
  return std::max<std::size_t>(1, groups.size());
}

/// The number of ranks that reduce with each other; 0: not given. A process's first rank is always in the list; the
/// others follow.
std::int64_t ranks_of_group(const Run& run) {
  if (run.group_by_rank.empty()) return 0;
  const std::int64_t ranks_per_process = std::max<std::int64_t>(1, run.ranks_of_process);
  if (run.list_is_cut && run.ranks_of_process == 0)
    refuse_line(run.ranks_line,
                "the list of ranks is cut, and no line '# nThread ... nGpus ...' says how many there are");
  const std::int64_t processes = run.group_by_rank.rbegin()->first / ranks_per_process + 1;
  std::map<std::int64_t, std::set<std::int64_t>> listed;  // by group: the processes that have ranks in it
  for (const auto& [rank, group] : run.group_by_rank) listed[group].insert(rank / ranks_per_process);
  if (listed.size() == 1) return processes * ranks_per_process;
  std::map<std::int64_t, std::int64_t> ranks_by_group;
  for (const auto& [group, of_group] : listed)
    ranks_by_group[group] = static_cast<std::int64_t>(of_group.size()) * ranks_per_process;
  return size_of_groups(ranks_by_group, run.ranks_line);
}

/// Facts of a log that are known only after all its runs.
struct WholeLog {
  bool has_unchecked = false, lacks_ranks = false;  ///< some row was not checked; some run has no number of ranks
  bool has_cpu_times = false;
  std::string inferred;  ///< a collective that no program named
  /// --collective was needed: nothing else tells the collective of a run
  bool is_helped = false;
  std::string contradiction;  ///< "line 12: ..."; a run's collective differs from --collective
};

/// Finds the collective of a run that does not name it: the one that its columns leave, else the user's.
std::string unnamed_collective(const Run& run, std::int64_t stated_ranks, std::int64_t ranks,
                               const UserFacts& user_facts, WholeLog& whole) {
  const Row& row = run.rows.front();
  std::string told = told_by_columns(run, ranks);
  if (told.empty() && stated_ranks == 0) told = told_by_columns(run, 0);  // --ranks may be wrong
  if (user_facts.collective.empty()) return whole.inferred = told;
  const bool says_op = run.columns.has("redop") || !row.errors_are_counts,
             says_root = run.columns.has("root") || !row.errors_are_counts;
  std::string why = says_op && says_root ? collective_refusal(user_facts.collective, row.op, row.root) : "";
  if (why.empty() && !told.empty() && told != user_facts.collective)
    why = fmt::format("its columns and bus bandwidth are those of {}", told);
  if (why.empty()) {
    whole.is_helped = true;
    return user_facts.collective;
  }
  why = fmt::format("{}, but --collective {}; leave --collective out, or give it for the other programs' logs alone",
                    why, user_facts.collective);
  if (told.empty()) refuse_line(row.line, why);
  if (whole.contradiction.empty()) whole.contradiction = fmt::format("line {}: {}", row.line, why);
  return whole.inferred = told;
}

/// Adds unusual settings of a run to a point.
void add_settings(const Run& run, core::Point& p) {
  if (run.graph > 0) p.factors[core::Factor::cudagraph] = run.graph;
  if (run.calls > 1) add_problem(p, fmt::format("agg={}", run.calls));
  if (!run.blocking.empty()) add_problem(p, fmt::format("blocking={}", run.blocking));
  if (run.unaligned > 0) add_problem(p, fmt::format("unalign={}", run.unaligned));
}

void add_run(const Run& run, const UserFacts& user_facts, core::Run& out, Faults& faults, WholeLog& whole) {
  out.info = run.info;
  if (!run.list_is_cut && !has_gap(run)) out.info.nodes = static_cast<std::int64_t>(run.info.hosts.size());
  if (run.rows.empty()) return;
  const std::int64_t listed = ranks_of_group(run), stated = has_gap(run) && user_facts.ranks > listed ? 0 : listed,
                     ranks = checked_ranks(stated, user_facts, run.ranks_line);
  const std::size_t line = run.rows.front().line;
  const std::string collective = run.collective.empty() ? unnamed_collective(run, stated, ranks, user_facts, whole)
                                                        : checked_collective(run.collective, user_facts, line);
  if (collective.empty())
    refuse_line(line,
                "which collective it is is not said before it (older versions do not); give --collective allreduce");
  const double ratio = bus_ratio(run);
  constexpr double most = 1.1;  // the largest ratio of collectives other than an all-reduce, with rounding
  const auto factor = ranks > 0 ? bus_factor(collective, ranks) : std::nullopt;
  if (stated == 0 && ratio > 0 && (factor ? !is_near(ratio, factor) : ratio > most && collective != "allreduce"))
    refuse_line(
        line, fmt::format("busbw is {:.3g} times algbw, but {:.3g} times for {}{}; check --ranks and --collective",
                          ratio, factor.value_or(1), collective, ranks > 0 ? fmt::format(" of {} ranks", ranks) : ""));
  whole.lacks_ranks = whole.lacks_ranks || ranks == 0;
  core::Point common = collective_point(collective, ranks, 1, user_facts);
  common.factors[core::Factor::algorithm] = "nccl";
  common.factors[core::Factor::device] = "cuda";
  if (const std::size_t groups = number_of_groups(run); groups > 1)
    add_problem(common, fmt::format("groups={}", groups));
  add_settings(run, common);
  for (const Row& row : run.rows) {
    if (row.size == 0) {
      ++faults.without_bytes;
      continue;
    }
    for (const Measured& m : row.halves) {
      whole.has_unchecked = whole.has_unchecked || m.errors == "N/A";
      whole.has_cpu_times = whole.has_cpu_times || row.of_cpu_time;
      if (m.seconds > 0) {
        out.points.push_back(point_of(row, m, common, faults));
        if (has_gap(run) && user_facts.ranks == 0)
          mistrust(out.points.back(), "the list of ranks lacks one, so that its end may be lost too", faults);
      } else {
        ++faults.without_time;
      }
    }
  }
}

bool is_nccl_tests(std::string_view log) {
  for (const std::string_view mark : {"#wrong", "# nThread", "# nccl-tests version"})
    if (log.find(mark) != std::string_view::npos) return true;
  const auto words = words_of(log.substr(0, log.find('\n')));  // rows without their head are refused
  constexpr std::size_t columns = 13;
  return words.size() == columns && is_count(words[0]) && is_count(words[1]) && !is_count(words[2]);
}

Imported read_nccl_tests(std::string_view log, const UserFacts& user_facts) {
  Imported out;
  Run run;
  LogReader reader(log, nccl_tests_format.name);
  WholeLog whole;
  const auto end_run = [&] {
    out.begin_run();
    add_run(run, user_facts, out.run(), reader.faults, whole);
    run = {};
  };
  reader.each_line([&](std::string_view line, std::size_t number) {
    if (reader.is_of_other_tool(line, number)) return run.began() ? end_run() : void();
    if (line.starts_with('#')) {
      if (line.starts_with("# ")) reader.end_rows();
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
    reader.add_row(line, number, begins_with_count(line), [&](std::string_view row, bool joined) {
      run.rows.push_back(row_of(row, joined, number, run.columns));
    });
    if (run.ended && run.rows.size() > before) refuse_worlds(number, "a row stands after its run's end");
  });
  reader.end_rows(/*is_log_end=*/true);
  end_run();
  if (!whole.is_helped && !whole.contradiction.empty()) throw UsageError(whole.contradiction);
  reader.finish(out);
  out.not_stated = "the spread of times (each is a mean over iterations)";
  if (whole.has_cpu_times) out.not_stated += note_on_cpu_rates;
  if (whole.has_unchecked) out.not_stated += "; whether results were right (run with -c 0)";
  if (whole.lacks_ranks) out.not_stated += "; the number of ranks (--ranks says it)";
  if (!whole.inferred.empty())
    out.not_stated += fmt::format("; its collective ({} by its columns and bus bandwidth)", whole.inferred);
  return out;
}

}  // namespace

const Format nccl_tests_format{.name = "nccl-tests",
                               .about = "the table that all_reduce_perf and its like print",
                               .source = "NVIDIA/nccl-tests, src/util.cu",
                               .recognises = is_nccl_tests,
                               .read = read_nccl_tests};

}  // namespace gradmeter::importers
