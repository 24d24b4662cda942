// SPDX-License-Identifier: Apache-2.0
// Intel's MPI benchmarks: a table for each benchmark and number of processes. The time is the slowest rank's where the
// table has it. Sizes that IMB could not measure have a line that says why; they are rows without times.
#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "importers/collectives.hpp"
#include "importers/importers.hpp"
#include "importers/rows.hpp"

namespace gradmeter::importers {
namespace {

struct ImbKind {
  std::string_view name, collective;
  std::string_view problem = "";  ///< tells the kind from another of the same collective
  bool by_parts = false;          ///< the log's size is one rank's part, although gives_size_of_one_part() is false
};
/// The kind of a benchmark by its name; null for those that we do not have: other forms (Allgatherv), several groups at
/// once (Multi-Allreduce), non-blocking calls.
const ImbKind* imb_kind(std::string_view name) {
  static constexpr std::array known{ImbKind{"PingPong", "ping_pong"},
                                    ImbKind{"Sendrecv", "sendrecv"},
                                    ImbKind{"Allreduce", "allreduce"},
                                    ImbKind{"Reduce", "reduce"},
                                    ImbKind{"Reduce_scatter", "reduce_scatter"},
                                    ImbKind{"Reduce_scatter_block", "reduce_scatter", "block", true},
                                    ImbKind{"Allgather", "all_gather"},
                                    ImbKind{"Gather", "gather"},
                                    ImbKind{"Scatter", "scatter"},
                                    ImbKind{"Alltoall", "all_to_all"},
                                    ImbKind{"Bcast", "broadcast"}};
  const auto* const found = std::ranges::find(known, name, &ImbKind::name);
  return found == known.end() ? nullptr : found;
}

/// The number after "#processes =", which older versions put in parentheses; 0: none on this line.
std::int64_t processes_in(std::string_view line, std::size_t number) {
  constexpr std::string_view key = "#processes =";
  const std::size_t place = line.find(key);
  if (place == std::string_view::npos) return 0;
  auto words = words_of(line.substr(place + key.size()));
  if (words.empty()) refuse_line(number, "'#processes =' has no number");
  if (words[0].ends_with(';')) words[0].pop_back();  // "4; rank order (rowwise):" of -map
  return count_of(words[0], number);
}

/// The facts of the head before all tables.
struct ImbHead {
  std::string part = "MPI-1";  ///< the program: others have tables of the same names that measure something else
  std::string dtype, dtype_of_reductions, op;
};
bool is_reduction(std::string_view collective) {
  return collective == "allreduce" || collective == "reduce" || collective == "reduce_scatter";
}

/// "#    Intel(R) MPI Benchmarks 2021.7, MPI-1 part", "# MPI_Datatype for reductions    :   MPI_FLOAT".
void read_imb_head(std::string_view line, const std::vector<std::string>& words, ImbHead& head) {
  if (line.find("MPI Benchmarks") != std::string_view::npos) {
    head = {};
    if (words.back() == "part") head.part = words[words.size() - 2];
  }
  if (line.starts_with("# MPI_Datatype for reductions")) {
    head.dtype_of_reductions = mpi_element(words.back());
  } else if (line.starts_with("# MPI_Datatype") && words.back() != "MPI_BYTE") {
    head.dtype = mpi_element(words.back());
  } else if (line.starts_with("# MPI_Op") && words.back().starts_with("MPI_")) {
    head.op = core::lower(words.back().substr(std::string_view("MPI_").size()));
  }
}

struct ImbTable {
  std::string name;
  const ImbKind* kind = nullptr;
  std::int64_t ranks = 0;
  ImbHead head = {};
  std::vector<std::string> columns = {};
  /// The index of the first column whose name begins so; columns.size(): there is none.
  std::size_t place(std::string_view column) const {
    const auto found = std::ranges::find_if(columns, [&](const auto& c) { return c.starts_with(column); });
    return static_cast<std::size_t>(found - columns.begin());
  }
};

core::Point imb_point(const ImbTable& table, std::int64_t size, std::size_t number, const UserFacts& user_facts) {
  core::Point p = collective_point(std::string(table.kind->collective), table.ranks, size, user_facts);
  if (!table.kind->problem.empty()) add_problem(p, std::string(table.kind->problem));
  const bool reduces = is_reduction(table.kind->collective);
  if (const std::string& dtype = reduces ? table.head.dtype_of_reductions : table.head.dtype; !dtype.empty())
    p.factors[core::Factor::dtype] = dtype;
  if (reduces && !table.head.op.empty()) p.factors[core::Factor::op] = table.head.op;
  if (table.head.part == "MPI-1-GPU") p.factors[core::Factor::device] = "gpu";
  set_whole_size(p, number, table.kind->by_parts);
  return p;
}

/// "4194304 out-of-mem.; needed X= 1.254 GB; ...": the text after the size is the reason why there is no time.
std::optional<core::Point> unmeasured(std::string_view line, const std::vector<std::string>& words, std::size_t number,
                                      const ImbTable& table, const UserFacts& user_facts) {
  constexpr std::array<std::string_view, 3> reasons{"out-of-mem", "time-out", "int-overflow"};
  const bool is_unmeasured = words.size() > 1 && is_count(words[0]) &&
                             std::ranges::any_of(reasons, [&](auto r) { return words[1].starts_with(r); });
  if (!is_unmeasured) return std::nullopt;
  core::Point p = imb_point(table, count_of(words[0], number), number, user_facts);
  p.factors[core::Factor::reduction] = std::string(table.place("t_max") < table.columns.size() ? "max" : "rank0");
  p.status = words[1].starts_with("int-overflow") ? core::Status::unsupported : core::Status::failed;
  p.reason = std::string(line.substr(line.find(words[1])));
  return p;
}

/// Errors: UsageError if the line is no row of this table.
std::optional<core::Point> imb_row(std::string_view line, std::size_t number, const ImbTable& table,
                                   const UserFacts& user_facts, Faults& faults) {
  const auto words = words_of(line);
  if (words.size() != table.columns.size()) refuse_columns(number, words.size(), table.columns.size());
  constexpr std::size_t counts = 2, decimals = 2;  // #bytes and #repetitions, then times and rates
  for (std::size_t i = counts; i < words.size(); ++i) number_of(words[i], decimals, number);
  count_of(words[1], number);
  const std::int64_t size = count_of(words[0], number);
  const auto time = [&](std::size_t column) {
    const auto units = units_of(table.columns[column]);
    return number_of(words[column], number) * (units.empty() ? 1e-6 : unit_seconds(units.front(), number));
  };
  const std::size_t least = table.place("t_min"), most = table.place("t_max"), mean = table.place("t_avg"),
                    only_time = table.place("t["), defects = table.place("defects"), rate = table.place("Mbytes/sec"),
                    none = table.columns.size();
  const bool over_ranks = most < none;
  if (!over_ranks && only_time == none) refuse_line(number, "the table has neither t_max nor t");
  const double seconds = time(over_ranks ? most : only_time);
  if (size == 0) ++faults.without_bytes;
  if (size > 0 && !(seconds > 0)) ++faults.without_time;
  if (size == 0 || !(seconds > 0)) return std::nullopt;
  core::Point p = imb_point(table, size, number, user_facts);
  set_time_and_rates(p, seconds);
  p.factors[core::Factor::reduction] = over_ranks ? "max" : "rank0";
  if (defects < none) {
    if (number_of(words[defects], number) == 0) {
      set_wrong(p, 0);
    } else {
      p.status = core::Status::wrong;
      p.reason = fmt::format("IMB found defects of {}", words[defects]);
    }
  }
  if (over_ranks && least < none && mean < none) {
    if (time(least) > 0) p.metrics[core::Metric::ranks_spread] = seconds / time(least);
    check_order(p, time(least), time(mean), seconds, faults);
  } else if (rate < none) {
    const double unit = unit_bytes_per_s(table.columns[rate], number), bytes = number_of(words[rate], number) * unit;
    check_rates(p, bytes, bytes, 0.01 * unit, faults);
  }
  return p;
}

/// "# !! Benchmark PingPong invalid for 1 processes !!"
std::optional<core::Point> invalid_point(const std::vector<std::string>& words, std::size_t number,
                                         const UserFacts& user_facts) {
  if (words.size() < 7 || words[2] != "Benchmark" || words[4] != "invalid") return std::nullopt;
  const ImbKind* kind = imb_kind(words[3]);
  if (!kind) return std::nullopt;
  core::Point p = collective_point(std::string(kind->collective), count_of(words[6], number), 0, user_facts);
  p.factors[core::Factor::size_bytes] = {};
  p.status = core::Status::unsupported;
  p.reason = fmt::format("IMB says that {} is invalid for {} processes", words[3], words[6]);
  return p;
}

void read_table_head(std::string_view line, const std::vector<std::string>& words, std::size_t number,
                     const UserFacts& user_facts, const ImbHead& head, ImbTable& table) {
  if (line.starts_with("# Benchmarking ") && words.size() > 2) {
    const bool is_known = head.part == "MPI-1" || head.part == "MPI-1-GPU";
    table = {.name = words[2], .kind = is_known ? imb_kind(words[2]) : nullptr, .head = head};
    if (!is_known) table.name = fmt::format("{} of IMB-{}", words[2], head.part);
    if (table.kind) checked_collective(std::string(table.kind->collective), user_facts, number);
  }
  if (const auto found = processes_in(line, number)) {
    const bool is_pair = table.kind && table.kind->collective == "ping_pong";
    table.ranks = is_pair ? found : checked_ranks(found, user_facts, number);
  }
  // A second head under one title means that the title above it is lost.
  if (words[0] == "#bytes" && !table.columns.empty()) table = {};
  if (words[0] == "#bytes") table.columns = words;
}

bool is_imb(std::string_view log) {
  return log.find("MPI Benchmarks") != std::string_view::npos ||
         (log.find("#repetitions") != std::string_view::npos && log.find("# Benchmarking ") != std::string_view::npos);
}

Imported read_imb(std::string_view log, const UserFacts& user_facts) {
  Imported out;
  ImbHead head;
  ImbTable table;
  LogReader reader(log, imb_format.name);
  reader.each_line([&](std::string_view line, std::size_t number) {
    const auto words = words_of(line);
    if (reader.is_of_other_tool(line, number)) {
      table = {};
      return;
    }
    if (line.starts_with('#')) {
      reader.end_rows();
      if (line.find("MPI Benchmarks") != std::string_view::npos) out.begin_run();
      read_imb_head(line, words, head);
      if (auto p = invalid_point(words, number, user_facts)) out.run().points.push_back(std::move(*p));
      return read_table_head(line, words, number, user_facts, head, table);
    }
    const bool begins = begins_with_count(line);
    if (table.name.empty() && !table.columns.empty() && begins)
      reader.faults.add_other("a table without a title", number, "nobody knows of what");
    if (words.empty() || table.name.empty()) return;
    if (!table.kind) return begins ? reader.faults.add_other(table.name, number) : void();
    if (table.columns.empty())
      return begins ? reader.faults.add_unreadable(fmt::format("line {}: a row stands before '#bytes'", number))
                    : void();
    if (begins && table.ranks == 0 && user_facts.ranks == 0 &&
        (table.kind->by_parts || gives_size_of_one_part(table.kind->collective)))
      refuse_line(number, "the size is one rank's part, and '#processes =' is not there; --ranks says of how many");
    if (auto p = unmeasured(line, words, number, table, user_facts)) {
      reader.end_rows();
      return out.run().points.push_back(std::move(*p));
    }
    reader.add_row(line, number, begins, [&](std::string_view row, bool) {
      if (auto p = imb_row(row, number, table, user_facts, reader.faults)) out.run().points.push_back(std::move(*p));
    });
  });
  reader.finish(out);
  for (auto& run : out.runs) run.info.version = "Intel MPI Benchmarks";
  out.not_stated = "the spread of times over iterations, whether results were right";
  return out;
}

}  // namespace

const Format imb_format{.name = "imb",
                        .about = "the tables of Intel's MPI benchmarks",
                        .source = "IMB-MPI1 2019 to 2021",
                        .recognises = is_imb,
                        .read = read_imb};

}  // namespace gradmeter::importers
