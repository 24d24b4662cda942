// SPDX-License-Identifier: Apache-2.0
// Output of nccl-tests with -J: results of one program, with its arguments and configuration.
#include <array>
#include <map>
#include <optional>
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
using core::UsageError;

/// The value under a key; errors name the object as `where`. Errors: UsageError.
template <class T>
T at(const Json& object, const char* key, const std::string& where) {
  try {
    return object.at(key).get<T>();
  } catch (const Json::exception&) {
    throw UsageError(fmt::format("{}: '{}' is missing or of another kind", where, key));
  }
}

/// The collective of the log's program, or else the user's (`is_from_user`).
std::string collective_from(const Json& log, const UserFacts& user_facts, bool& is_from_user) {
  std::string program;
  if (log.contains("args") && log["args"].is_array() && !log["args"].empty() && log["args"][0].is_string())
    program = log["args"][0].get<std::string>();
  const std::string file = program.substr(program.rfind('/') + 1);
  const std::string in_log = file.ends_with("_perf") ? nccl_kind(file) : "";
  std::string collective = checked_collective(in_log, user_facts, 0);
  is_from_user = in_log.empty();
  if (!collective.empty()) return collective;
  throw UsageError(
      fmt::format("'args' does not name a collective's program ('{}'); give --collective allreduce", program));
}

std::int64_t count_at(const Json& object, const char* key, std::int64_t fallback, const std::string& where = "config") {
  constexpr std::int64_t most = 1 << 24;
  if (!object.contains(key)) return fallback;
  const auto value = at<std::int64_t>(object, key, where);
  if (!object[key].is_number_integer() || value < 0 || value > most)
    throw UsageError(fmt::format("{}: '{}' is {}, which is no count", where, key, core::json_text(object[key])));
  return value;
}

/// The number of ranks of a group, and the number of groups. Each process has one entry, which has its first rank and
/// stands for `ranks_per_entry` ranks.
std::pair<std::int64_t, std::size_t> groups_of(const Json& devices, std::int64_t ranks_per_entry) {
  std::map<std::int64_t, std::int64_t> ranks_by_group;
  std::set<std::int64_t> firsts;
  for (const Json& device : devices) {
    if (!device.is_object()) throw UsageError("config: 'devices' has an entry that is no object");
    ranks_by_group[count_at(device, "group", 0)] += ranks_per_entry;
    const auto next = static_cast<std::int64_t>(firsts.size()) * ranks_per_entry;
    firsts.insert(count_at(device, "rank", next));
  }
  std::int64_t next = 0;
  for (const std::int64_t first : firsts) {
    if (first != next)
      throw UsageError(
          fmt::format("config: 'devices' has rank {} where {} should follow, since an entry stands for {} "
                      "ranks; nobody knows how many there are",
                      first, next, ranks_per_entry));
    next += ranks_per_entry;
  }
  if (firsts.size() < devices.size()) throw UsageError("config: 'devices' has a rank twice");
  if (devices.empty()) return {0, 1};
  return {size_of_groups(ranks_by_group, 0), ranks_by_group.size()};
}

/// The common part of all points, from the settings in 'config'.
core::Point common_point(const Json& log, const std::string& collective, const UserFacts& user_facts) {
  const Json config = log.value("config", Json::object());
  if (!config.is_object()) throw UsageError("'config' is no object");
  const std::int64_t graph = count_at(config, "graph", 0), calls = count_at(config, "aggregated_iterations", 1);
  const std::int64_t ranks_per_entry = count_at(config, "nthreads", 1) * count_at(config, "ngpus", 1);
  if (constexpr std::int64_t most = 1 << 24; ranks_per_entry > most)
    throw UsageError("config: 'nthreads' times 'ngpus' is more ranks than a process has");
  const Json devices = config.value("devices", Json::array());
  if (!devices.is_array()) throw UsageError("config: 'devices' is no list");
  const auto [stated, groups] = groups_of(devices, ranks_per_entry);
  core::Point p = collective_point(collective, checked_ranks(stated, user_facts, 0), 1, user_facts);
  if (groups > 1) add_problem(p, fmt::format("groups={}", groups));
  if (graph > 0) p.factors[core::Factor::cudagraph] = graph;
  if (calls > 1) add_problem(p, fmt::format("agg={}", calls));
  const Json blocking = config.value("blocking_collectives", Json(false));
  if (blocking == "true" || blocking == true) add_problem(p, "blocking");
  p.factors[core::Factor::algorithm] = "nccl";
  p.factors[core::Factor::device] = "cuda";
  return p;
}

/// Sets hosts, GPUs and nodes from the list of devices, which has each process's first. `common_point` has checked that
/// it is a list of all processes.
void fill_machine(const Json& log, core::RunInfo& info) {
  bool names_all_hosts = true;
  std::set<std::string> hosts;
  for (const Json& device : log.value("config", Json::object()).value("devices", Json::array())) {
    const std::string host = text_of(device, "hostname"), gpu = text_of(device, "device_info");
    names_all_hosts = names_all_hosts && !host.empty();
    if (!host.empty()) hosts.insert(host);
    if (!gpu.empty()) info.gpus.push_back(gpu);
  }
  info.hosts.assign(hosts.begin(), hosts.end());
  if (names_all_hosts) info.nodes = static_cast<std::int64_t>(hosts.size());
}

/// The root of a row, a text such as "    -1"; -1: none.
std::int64_t root_of(const Json& row, const std::string& where) {
  if (!row.contains("root")) return -1;
  const auto words = words_of(at<std::string>(row, "root", where));
  if (words.size() != 1 || (words[0] != "-1" && !is_count(words[0])))
    throw UsageError(fmt::format("{}: 'root' is no rank", where));
  return words[0] == "-1" ? -1 : count_of(words[0], 0);
}

/// A measured number. None if it is not one: nccl-tests writes "nan", others nan.
std::optional<double> measured(const Json& times, const char* key, const std::string& where, Faults& faults) {
  const auto found = times.find(key);
  if (found != times.end() && (found->is_null() || (found->is_string() && *found == "nan"))) {
    faults.add_unreadable(fmt::format("{}: '{}' is nan", where, key));
    return std::nullopt;
  }
  return at<double>(times, key, where);
}

/// The point of one half of a row, in place or out of place; none if it has no time.
std::optional<core::Point> half_point(const Json& row, const Json& times, const std::string& where,
                                      const core::Factors& common, bool in_place, Faults& faults) {
  core::Point p;
  p.experiment = "allreduce";
  p.factors = common;
  p.factors[core::Factor::size_bytes] = at<std::int64_t>(row, "size", where);
  p.factors[core::Factor::dtype] = nccl_type(at<std::string>(row, "type", where), 0);
  if (const auto op = at<std::string>(row, "redop", where); op != "none") p.factors[core::Factor::op] = op;
  p.factors[core::Factor::in_place] = in_place;
  const std::int64_t root = root_of(row, where);
  if (root > 0) add_problem(p, fmt::format("root={}", root));
  const bool of_cpu_time = times.contains("cpu_time");
  if (of_cpu_time) add_problem(p, "time=cpu");
  std::array<double, 3> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto number =
        measured(times, std::array{of_cpu_time ? "cpu_time" : "time", "alg_bw", "bus_bw"}.at(i), where, faults);
    if (!number) return std::nullopt;
    numbers.at(i) = *number;
  }
  const double seconds = numbers[0] * 1e-6, algbw = numbers[1] * 1e9, busbw = numbers[2] * 1e9;
  if (!(seconds > 0)) {
    ++faults.without_time;
    return std::nullopt;
  }
  p.metrics[core::Metric::time_s] = summary_of_mean(seconds);
  if (times.contains("nwrong") && times["nwrong"].is_number()) set_wrong(p, times["nwrong"].get<double>());
  constexpr double digit = 1e3;  // six digits of GB/s
  check_bus_factor(p, algbw, busbw, digit, faults);
  // With -C the rates are still those of the whole call, not of the time in the row.
  if (of_cpu_time) return p;
  p.metrics[core::Metric::algbw_bytes_per_s] = algbw;
  p.metrics[core::Metric::busbw_bytes_per_s] = busbw;
  check_rates(p, algbw, busbw, digit, faults);
  return p;
}

/// Replaces the mean time by the times of iterations if they were recorded (-I), so that median and tail are known.
/// They are another quantity than the mean: events of the GPU, of each iteration the slowest process, without the
/// iterations that -K leaves out. So the rates become those of their median.
void add_iterations(core::Point& p, const Json& row, const char* key, const std::string& where) {
  const auto found = row.find(key);
  if (found == row.end() || !found->contains("times_us") || !(*found)["times_us"].is_array()) return;
  const Json& times = (*found)["times_us"];
  const std::int64_t skipped = count_at(*found, "skipped_iterations", 0, where);
  std::vector<double> seconds;
  for (std::size_t i = static_cast<std::size_t>(skipped); i < times.size(); ++i)
    if (times[i].is_number() && times[i].get<double>() > 0) seconds.push_back(times[i].get<double>() * 1e-6);
  if (seconds.empty()) return;
  const core::Summary summary = summary_of_iterations(seconds);
  for (const auto rate : {core::Metric::algbw_bytes_per_s, core::Metric::busbw_bytes_per_s}) p.metrics[rate] = {};
  set_time_and_rates(p, summary.median);
  p.metrics[core::Metric::time_s] = summary;
  p.factors[core::Factor::reduction] = "max";
  p.raw_times_s = std::move(seconds);
}

bool is_nccl_tests_json(std::string_view log) {
  return log.substr(0, 64).find("\"version\"") != std::string_view::npos &&
         log.find("\"nccl_version\"") != std::string_view::npos;
}

Imported read_nccl_tests_json(std::string_view log, const UserFacts& user_facts) {
  const Json json = parse_json(log);
  if (!json.is_object() || !json.contains("results") || !json["results"].is_array())
    throw UsageError("it has no 'results'");
  Imported out;
  if (json.contains("nccl_version")) {
    const auto code = at<std::int64_t>(json, "nccl_version", "the log");
    out.run().info.version = fmt::format("nccl-tests, NCCL {}", code);
    if (code > 0) out.run().info.libraries["NCCL"] = nccl_version(code);
  }
  bool is_from_user = false;
  const std::string collective = collective_from(json, user_facts, is_from_user);
  const core::Point common = common_point(json, collective, user_facts);
  fill_machine(json, out.run().info);
  std::size_t number = 0;
  bool has_cpu_times = false;
  Faults faults;
  for (const Json& row : json["results"]) {
    const std::string where = fmt::format("result {}", ++number);
    if (row.is_object() && row.contains("size") && row["size"] == 0) {
      ++faults.without_bytes;
      continue;
    }
    for (const bool in_place : {false, true}) {
      const char* key = in_place ? "in_place" : "out_of_place";
      if (!row.is_object() || !row.contains(key)) throw UsageError(fmt::format("{}: '{}' is missing", where, key));
      if (row[key].is_null()) continue;
      const std::string op = at<std::string>(row, "redop", where);
      if (const std::string why = collective_refusal(collective, op == "none" ? "" : op, root_of(row, where));
          is_from_user && !why.empty())
        throw UsageError(fmt::format("{}: {}, but --collective {}; leave --collective out", where, why, collective));
      auto p = half_point(row, row[key], where, common.factors, in_place, faults);
      if (!p) continue;
      // The time of a row of -C is the CPU's, which iterations do not have.
      has_cpu_times = has_cpu_times || row[key].contains("cpu_time");
      if (!row[key].contains("cpu_time"))
        add_iterations(*p, row, in_place ? "in_place_per_iter" : "out_of_place_per_iter", where);
      out.run().points.push_back(std::move(*p));
    }
  }
  out.faults = faults.text();
  out.not_stated = "the spread of times, unless iterations were recorded one by one";
  if (has_cpu_times) out.not_stated += note_on_cpu_rates;
  return out;
}

}  // namespace

const Format nccl_tests_json_format{.name = "nccl-tests-json",
                                    .about = "what they write with -J",
                                    .source = "NVIDIA/nccl-tests, src/util.cu, versions 1 and 2",
                                    .recognises = is_nccl_tests_json,
                                    .read = read_nccl_tests_json};

}  // namespace gradmeter::importers
