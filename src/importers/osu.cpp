// SPDX-License-Identifier: Apache-2.0
// The OSU micro-benchmarks. A title names the measurement and the memories; a line "# Size ..." names the columns, of
// which there are more with -f and -c, and for non-blocking calls. Each title is a launch of its own.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "importers/collectives.hpp"
#include "importers/importers.hpp"
#include "importers/rows.hpp"

namespace gradmeter::importers {
namespace {

constexpr std::size_t osu_decimals = 2;

/// The facts in "#" lines about the rows below them.
struct OsuHead {
  std::string title;               ///< "Allreduce Latency Test"
  std::string collective;          ///< empty: no kind of ours
  std::string problem;             ///< empty: plain calls
  std::string why = unknown_kind;  ///< the reason if its rows are left out
  std::string device, buffers, dtype;
  std::string derived = {};  ///< data type, with gaps: "vector"; empty: none
  std::int64_t ranks = 0;    ///< 0: not stated
  bool is_bandwidth = false;
  std::set<std::string> dtypes = {};                           ///< element types of the title's tables so far
  bool has_new_dtype = false;                                  ///< a type was named after the last head of a table
  std::vector<std::string> columns = {};                       ///< with their units
  std::size_t value = 0, least = 0, mean = 0, validation = 0;  ///< places of columns; 0: none
  /// column of the bytes of a derived data type that are sent
  std::size_t sent = 0;
  double unit = 1e-6;       ///< unit of times [s], or of rates [B/s]
  bool of_slowest = false;  ///< whether the value is the slowest rank's
};

/// The collective that a title names between the library and "Latency Test"; empty: none of ours.
std::string osu_kind(const std::string& name) {
  static const std::map<std::string, std::string> known{
      {"", "ping_pong"},           {"allreduce", "allreduce"},
      {"reduce", "reduce"},        {"reduce_scatter", "reduce_scatter"},
      {"allgather", "all_gather"}, {"gather", "gather"},
      {"scatter", "scatter"},      {"broadcast", "broadcast"},
      {"bcast", "broadcast"},      {"all-to-all", "all_to_all"},
      {"alltoall", "all_to_all"},  {"all-to-all personalized exchange", "all_to_all"}};
  const auto found = known.find(name);
  return found == known.end() ? "" : found->second;
}

/// "# OSU MPI-CUDA Non-blocking Allreduce Latency Test v7.4"
OsuHead head_of_title(std::string_view line) {
  const auto words = words_of(line);
  OsuHead head{.title = std::string(line.substr(0, line.rfind(" v"))),
               .collective = {},
               .problem = {},
               .device = "cpu",
               .buffers = {},
               .dtype = {}};
  head.title.erase(0, std::string_view("# OSU ").size());
  if (words.size() < 4) return head;
  const std::string library = words[2].substr(0, words[2].find('-'));
  if (library != "MPI" && library != "NCCL" && library != "RCCL") return head;
  if (library != "MPI") head.device = library == "NCCL" ? "cuda" : "rocm";
  if (library.size() < words[2].size()) head.device = core::lower(words[2].substr(library.size() + 1));
  std::string name;
  std::size_t i = 3;
  for (; i < words.size() && words[i] != "Latency" && words[i] != "Bandwidth"; ++i) {
    const std::string word = core::lower(words[i]);
    if (word == "non-blocking" || word == "nonblocking" || word == "persistent") {
      head.problem = word == "persistent" ? word : "non-blocking";
    } else {
      name += name.empty() ? word : " " + word;
    }
  }
  // Other titles continue differently: "Multi Latency", "Bandwidth / Message Rate".
  if (i == words.size() || (i + 1 < words.size() && words[i + 1] != "Test")) return head;
  head.is_bandwidth = words[i] == "Bandwidth";
  if (!head.is_bandwidth || name.empty()) head.collective = osu_kind(name);
  return head;
}

/// "MPI_CHAR" of "# Datatype: MPI_CHAR.": the last word without its full stop.
std::string last_name(std::string_view line) {
  std::string name = words_of(line).back();
  if (name.ends_with('.')) name.pop_back();
  return name;
}

/// Makes the rows below those of a table `name` that is not read, for the reason `why`.
void leave_table_out(OsuHead& head, std::string name, const std::string& why) {
  head = {
      .title = std::move(name), .collective = {}, .problem = {}, .why = why, .device = {}, .buffers = {}, .dtype = {}};
}

/// "# MPI Alltoall Latency Test" of mpi4py, "# OMB-Py MPI Bcast Latency Test".
bool is_title_of_others(const std::vector<std::string>& words) {
  return words.size() > 2 && words[0] == "#" && words[1] != "OSU" && words.back() == "Test";
}

/// "# Size     Avg Latency(us)     Min Latency(us)": columns, which two blanks divide.
void read_osu_columns(std::string_view line, std::size_t number, OsuHead& head) {
  head.columns.clear();
  line.remove_prefix(line.find_first_not_of("# "));
  while (!line.empty()) {
    const std::size_t end = std::min({line.find("  "), line.find('\t'), line.size()});
    head.columns.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(line.find_first_not_of(" \t", end), line.size()));
  }
  const auto place = [&](std::string_view name) -> std::size_t {
    const auto found = std::ranges::find_if(head.columns, [&](const auto& c) { return c.starts_with(name); });
    return found == head.columns.end() ? 0 : static_cast<std::size_t>(found - head.columns.begin());
  };
  // A non-blocking call is also measured without computation beside it; that time counts.
  const bool is_plain = place("Pure Comm") == 0;
  head.sent = place("Transmit Size");
  const std::size_t first = head.sent == 1 ? 2 : 1;
  head.mean = is_plain ? std::max(first, place("Avg Latency")) : place("Pure Comm");
  head.least = place(is_plain ? "Min Latency" : "Min Comm");
  const std::size_t most = place(is_plain ? "Max Latency" : "Max Comm");
  head.of_slowest = most > 0;
  head.value = most > 0 ? most : head.mean;
  head.validation = place("Validation");
  if (head.columns.size() <= head.value) refuse_line(number, "'# Size' names no other column");
  const auto units = units_of(head.columns[head.value]);
  const std::string unit = units.empty() ? "us" : units.front();
  head.unit = head.is_bandwidth ? unit_bytes_per_s(unit, number) : unit_seconds(unit, number);
}

void read_osu_head(std::string_view line, std::size_t number, OsuHead& head) {
  const auto words = words_of(line);
  if (line.starts_with("# Datatype:")) {
    head.dtype = mpi_element(last_name(line));
    head.has_new_dtype = head.dtypes.insert(head.dtype).second;
  }
  if (line.starts_with("# Derived Datatype:")) head.derived = core::lower(last_name(line));
  if (line.starts_with("# Number of Ranks") && words.size() > 4) head.ranks = count_of(words[4], number);
  // "# Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)"
  if (const auto memory = units_of(line); line.starts_with("# Send Buffer on") && memory.size() == 2) {
    if (memory[0] == "H" && memory[1] == "H") head.device = "cpu";
    if (memory[0] != memory[1] || memory[0] == "M") head.buffers = fmt::format("send={},recv={}", memory[0], memory[1]);
  }
  if (is_title_of_others(words)) leave_table_out(head, std::string(line.substr(2)), "of another tool");
  if (!line.starts_with("# Size") || head.collective.empty()) return;
  // One title has a table for each element type (-T). Another table without a title is another program's.
  if (!head.columns.empty() && !head.has_new_dtype)
    return leave_table_out(head, "a table without a title", "nobody knows of what");
  head.has_new_dtype = false;
  read_osu_columns(line, number, head);
  // The log does not say how a rate counts the gaps of a derived type.
  if (head.is_bandwidth && (head.sent > 0 || !head.derived.empty()))
    leave_table_out(head, head.title + " of a derived data type", "whether its rate counts the gaps is not said");
}

/// True if the line ends with a row of this table, after other text and at most one blank. Columns are at least two
/// blanks apart, and the value has its decimals.
bool hides_osu_row(std::string_view line, const OsuHead& head) {
  std::size_t column = head.columns.size();
  while (column > 0) {
    --column;
    line = line.substr(0, line.find_last_not_of(" \t") + 1);
    const std::size_t begin = line.find_last_of(" \t") + 1;
    const std::string_view word = line.substr(begin);
    if (column == 0) return !word.empty() && digits.find(word.back()) != std::string_view::npos;
    if (column == head.value && (word.size() <= osu_decimals + 1 || word[word.size() - osu_decimals - 1] != '.' ||
                                 word.find_first_not_of("0123456789.") != std::string_view::npos))
      return false;
    line = line.substr(0, begin);
    if (!line.ends_with("  ") && !line.ends_with('\t')) return false;
  }
  return false;
}

/// Errors: UsageError if the line is no row of this table.
std::optional<core::Point> osu_row(std::string_view line, std::size_t number, const OsuHead& head, std::int64_t ranks,
                                   const UserFacts& user_facts, Faults& faults) {
  const auto words = words_of(line);
  if (words.size() != head.columns.size()) refuse_columns(number, words.size(), head.columns.size());
  count_of(words[0], number);
  const std::int64_t size = count_of(words[head.sent], number);  // without a derived type it is the first column
  const double value = number_of(words[head.value], osu_decimals, number);
  core::Point p = collective_point(head.collective, ranks, size, user_facts);
  if (head.validation > 0 && words[head.validation] == "Pass") {
    set_wrong(p, 0);
  } else if (head.validation > 0) {
    if (words[head.validation] != "Fail") refuse_line(number, "its validation neither passed nor failed");
    p.status = core::Status::wrong;
    p.reason = "the benchmark's own validation failed";
  }
  if (size == 0) ++faults.without_bytes;
  if (size > 0 && !(value > 0)) ++faults.without_time;
  if (size == 0 || !(value > 0)) return std::nullopt;
  set_whole_size(p, number);
  if (!head.dtype.empty()) p.factors[core::Factor::dtype] = head.dtype;
  p.factors[core::Factor::device] = head.device;
  if (!head.buffers.empty()) p.factors[core::Factor::buffers] = head.buffers;
  if (!head.problem.empty()) add_problem(p, head.problem);
  if (head.sent > 0 || !head.derived.empty())
    add_problem(p, fmt::format("derived={}", head.derived.empty() ? "unknown" : head.derived));
  if (head.is_bandwidth) {
    p.factors[core::Factor::pattern] = "one-way";
  } else {
    p.factors[core::Factor::reduction] = head.of_slowest ? "max" : "avg";
  }
  set_time_and_rates(p, head.is_bandwidth ? static_cast<double>(size) / (value * head.unit) : value * head.unit);
  if (head.of_slowest && head.least > 0) {
    const double least = number_of(words[head.least], osu_decimals, number);
    if (least > 0) p.metrics[core::Metric::ranks_spread] = value / least;
    check_order(p, least * head.unit, number_of(words[head.mean], osu_decimals, number) * head.unit, value * head.unit,
                faults);
  }
  return p;
}

bool is_osu(std::string_view log) { return log.find("# OSU ") != std::string_view::npos; }

Imported read_osu(std::string_view log, const UserFacts& user_facts) {
  Imported out;
  std::optional<OsuHead> head;  // none before the first title
  LogReader reader(log, osu_format.name);
  bool checked = true, ranks_unknown = false;
  reader.each_line([&](std::string_view line, std::size_t number) {
    if (reader.is_of_other_tool(line, number)) return head.reset();
    if (line.starts_with('#')) {
      reader.end_rows();
      if (line.starts_with("# OSU ")) {
        head = head_of_title(line);
        out.begin_run();
        out.run().info.version = std::string(line.substr(2));
        if (!head->collective.empty()) checked_collective(head->collective, user_facts, number);
      }
      if (!head && (line.starts_with("# Size") || is_title_of_others(words_of(line))))
        leave_table_out(head.emplace(), "a table without a title", "nobody knows of what");
      return head ? read_osu_head(line, number, *head) : void();
    }
    if (!head || line.find_first_not_of(" \t") == std::string_view::npos) return;
    if (head->collective.empty()) {
      if (line.find_first_not_of("0123456789.e+- \t") != std::string_view::npos) return;
      return reader.faults.add_other(head->title, number, head->why);
    }
    const bool begins = begins_with_count(line);
    if (begins && head->columns.empty())
      refuse_line(number, "a row stands before '# Size', which says what its columns are");
    const std::int64_t ranks = head->collective == "ping_pong" ? 2 : checked_ranks(head->ranks, user_facts, number);
    if (begins && ranks == 0 && gives_size_of_one_part(head->collective))
      refuse_line(number,
                  fmt::format("the size of an {} is one rank's part; --ranks says of how many", head->collective));
    const auto take = [&](std::string_view row, bool) {
      if (auto p = osu_row(row, number, *head, ranks, user_facts, reader.faults)) {
        out.run().points.push_back(std::move(*p));
        checked = checked && head->validation > 0;
        ranks_unknown = ranks_unknown || ranks == 0;
      }
    };
    reader.add_row(line, number, begins, take, !begins && hides_osu_row(line, *head));
  });
  reader.finish(out);
  out.not_stated = "the spread of times (each is a mean)";
  if (!checked) out.not_stated += ", whether results were right (run with -c)";
  if (ranks_unknown) out.not_stated += ", the number of ranks (--ranks says it)";
  return out;
}

}  // namespace

const Format osu_format{.name = "osu",
                        .about = "latency and bandwidth of the OSU micro-benchmarks",
                        .source = "OSU Micro-Benchmarks 5 to 7",
                        .recognises = is_osu,
                        .read = read_osu};

}  // namespace gradmeter::importers
