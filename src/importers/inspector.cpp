// SPDX-License-Identifier: Apache-2.0
// NCCL Inspector: the profiler plugin that writes a JSON line for each call of each rank.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "importers/collectives.hpp"
#include "importers/importers.hpp"
#include "importers/rows.hpp"
#include "importers/text.hpp"

namespace gradmeter::importers {
namespace {

using core::Json;

/// The value under `key` of the object under `part`. Errors: UsageError.
template <class T>
T field_of(const Json& record, const char* part, const char* key, std::size_t line) {
  try {
    return record.at(part).at(key).get<T>();
  } catch (const Json::exception&) {
    refuse_line(line, fmt::format("'{}.{}' is missing or of another kind", part, key));
  }
}

std::int64_t inspected_count(const Json& record, const char* part, const char* key, std::size_t line) {
  const auto value = field_of<Json>(record, part, key, line);
  if (!value.is_number_integer() || !(value >= 0) || value > std::numeric_limits<std::int64_t>::max())
    refuse_line(line, fmt::format("'{}.{}' is no count", part, key));
  return value.get<std::int64_t>();
}

/// A call: its number, and how often the recording rank had recorded this number before, as in the log of a restarted
/// job.
using InspectedCallId = std::pair<std::int64_t, std::size_t>;
/// Calls of one kind, size, communicator and clock; each has the time of its slowest rank in the log.
struct InspectedCalls {
  std::size_t first_line = 0;
  std::map<InspectedCallId, double> slowest;  ///< times [s]
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t>
      seen;  ///< by number and rank: how many records there are
  std::string communicator_name;
  bool of_several_ranks = false;
  std::string contradiction;  ///< contradiction of a call's time with its rates; empty: none
};
/// The calls that one row may have: those of any communicator with as many ranks on as many nodes.
struct InspectedKind {
  std::string collective;
  std::int64_t bytes = 0;  ///< as NCCL counts them
  std::int64_t ranks = 0, nodes = 0;
  std::string clock;  ///< "kernel_gpu", or another one
  auto operator<=>(const InspectedKind&) const = default;
};
/// Calls by the id of their communicator. Two communicators of equal size may use different links.
using ByCommunicator = std::map<std::string, InspectedCalls>;
constexpr const char* known_version = "v4.0";

struct InspectorLog {
  std::map<InspectedKind, ByCommunicator> calls;
  std::size_t left_out = 0;   ///< number of sends and receives
  std::string other_version;  ///< a version whose meaning is not known
  core::RunInfo info = unknown_run();
};

/// The point with the whole buffer's size.
core::Point sized_point(const InspectedKind& kind, std::size_t line, const UserFacts& user_facts) {
  core::Point p = collective_point(kind.collective, kind.ranks, kind.bytes, user_facts);
  if (kind.clock != "kernel_gpu") add_problem(p, fmt::format("time={}", kind.clock));
  set_whole_size(p, line, kind.collective == "reduce_scatter");  // NCCL counts it by the bytes that a rank receives
  return p;
}

/// The reason why a call's optional rates disagree with its time; empty: they agree.
std::string contradiction_of(const Json& call, core::Point p, double seconds, Faults& faults) {
  const auto algbw = call.find("coll_algobw_gbs"), busbw = call.find("coll_busbw_gbs");
  if (algbw == call.end() || busbw == call.end() || !algbw->is_number() || !busbw->is_number()) return "";
  constexpr double unit = 1e9, digit = 1e3;
  set_time_and_rates(p, seconds);
  check_rates(p, algbw->get<double>() * unit, busbw->get<double>() * unit, digit, faults);
  return p.reason;
}

void read_record(const Json& record, std::size_t line, InspectorLog& log, Faults& faults) {
  if (record.contains("p2p_perf")) return void(++log.left_out);
  const auto name = field_of<std::string>(record, "coll_perf", "coll", line);
  const std::string clock = text_of(record.at("coll_perf"), "coll_timing_source");
  const InspectedKind kind{.collective = collective_of(name).value_or(name),
                           .bytes = inspected_count(record, "coll_perf", "coll_msg_size_bytes", line),
                           .ranks = inspected_count(record, "header", "n_ranks", line),
                           .nodes = inspected_count(record, "header", "nnodes", line),
                           .clock = clock.empty() ? "kernel_gpu" : clock};
  const double seconds = field_of<double>(record, "coll_perf", "coll_exec_time_us", line) * 1e-6;
  if (!(seconds < 1e9)) refuse_line(line, "'coll_perf.coll_exec_time_us' is no time");
  // Times are whole microseconds, so a short call's may be 0.
  if (!(seconds > 0)) return void(++faults.without_time);
  if (kind.bytes == 0) return void(++faults.without_bytes);
  // A line may be torn, so all of it is read before any is kept.
  const auto communicator = field_of<std::string>(record, "header", "id", line);
  const std::int64_t call = inspected_count(record, "coll_perf", "coll_sn", line);
  const std::int64_t rank = record.at("header").contains("rank") ? inspected_count(record, "header", "rank", line) : 0;
  const auto host = field_of<std::string>(record, "metadata", "hostname", line);
  const auto version = field_of<std::string>(record, "metadata", "inspector_output_format_version", line);
  std::string contradiction = contradiction_of(record.at("coll_perf"), sized_point(kind, line, {}), seconds, faults);
  InspectedCalls& calls = log.calls[kind][communicator];
  if (calls.first_line == 0) calls.first_line = line;
  const std::size_t before = calls.seen[{call, rank}]++;
  const auto [at, added] = calls.slowest.try_emplace(InspectedCallId{call, before}, seconds);
  at->second = std::max(at->second, seconds);
  calls.of_several_ranks |= !added;
  if (!contradiction.empty()) calls.contradiction = std::move(contradiction);
  calls.communicator_name = text_of(record.at("header"), "comm_name");
  if (std::ranges::find(log.info.hosts, host) == log.info.hosts.end()) log.info.hosts.push_back(host);
  log.info.version = fmt::format("NCCL Inspector {}", version);
  if (version != known_version) log.other_version = version;
}

core::Point inspected_point(const InspectedKind& kind, const InspectedCalls& calls, const UserFacts& user_facts) {
  core::Point p = sized_point(kind, calls.first_line, user_facts);
  if (kind.nodes > 0) p.factors[core::Factor::nodes] = kind.nodes;
  p.factors[core::Factor::algorithm] = "nccl";
  p.factors[core::Factor::device] = "cuda";
  if (calls.of_several_ranks) p.factors[core::Factor::reduction] = "max";
  for (const auto& [call, seconds] : calls.slowest) p.raw_times_s.push_back(seconds);
  const core::Summary times = summary_of_iterations(p.raw_times_s);
  set_time_and_rates(p, times.median);
  p.metrics[core::Metric::time_s] = times;
  if (!calls.contradiction.empty()) {
    p.status = core::Status::mistrusted;
    p.reason = calls.contradiction;
  }
  return p;
}

/// A row for each communicator. Where there are several, the problem says whose a row is: by the communicators' names,
/// which are the same in the next job, or else by their ids.
void add_points(const InspectedKind& kind, const ByCommunicator& communicators, const UserFacts& user_facts,
                std::vector<core::Point>& out) {
  std::set<std::string> names;
  for (const auto& [id, calls] : communicators) names.insert(calls.communicator_name);
  const bool by_name = names.size() == communicators.size() && !names.contains("");
  for (const auto& [id, calls] : communicators) {
    out.push_back(inspected_point(kind, calls, user_facts));
    if (communicators.size() < 2) continue;
    std::string group = by_name ? calls.communicator_name : id;
    std::ranges::replace(group, ',', '+');  // commas separate the properties in a problem
    add_problem(out.back(), fmt::format("group={}", group));
  }
}

bool is_inspector(std::string_view log) {
  return log.find("\"inspector_output_format_version\"") != std::string_view::npos;
}

Imported read_inspector(std::string_view text, const UserFacts& user_facts) {
  InspectorLog log;
  LogReader reader(text, inspector_format.name);
  reader.each_line([&](std::string_view line, std::size_t number) {
    reader.add_row(line, number, line.starts_with('{'), [&](std::string_view row, bool) {
      const Json record = core::try_parse_json(row).value_or(nullptr);
      if (!record.is_object())
        refuse_cut(number, "it is no whole JSON object; the job may have ended while it was written");
      read_record(record, number, log, reader.faults);
    });
  });
  Imported out;
  reader.finish(out);
  if (user_facts.ranks > 0 && !log.calls.empty() &&
      std::ranges::none_of(log.calls, [&](const auto& c) { return c.first.ranks == user_facts.ranks; })) {
    const auto& [kind, communicators] = *log.calls.begin();
    checked_ranks(kind.ranks, user_facts, communicators.begin()->second.first_line);
  }
  out.run().info = std::move(log.info);
  bool one_rank = true;
  for (const auto& [kind, communicators] : log.calls) {
    add_points(kind, communicators, user_facts, out.run().points);
    for (const auto& [id, calls] : communicators) one_rank = one_rank && !calls.of_several_ranks;
  }
  out.not_stated = "the element type, whether results were right, how long of a call a rank waited for others";
  if (one_rank) out.not_stated += ", what other ranks took (their logs are other files)";
  if (!log.other_version.empty())
    out.not_stated += fmt::format("; its format version is {}, of which {} is known: the times may mean something else",
                                  log.other_version, known_version);
  if (log.left_out > 0) out.not_stated += fmt::format("; {} sends and receives are left out", log.left_out);
  return out;
}

}  // namespace

const Format inspector_format{.name = "nccl-inspector",
                              .about = "the JSON lines of NCCL's profiler plugin, a line for each call of each rank",
                              .source = "NVIDIA/nccl, plugins/profiler/inspector, format v4.0",
                              .recognises = is_inspector,
                              .read = read_inspector};

}  // namespace gradmeter::importers
