#include <optional>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "importers/importers.hpp"
#include "importers/lines.hpp"

namespace gradmeter::importers {
namespace {

using core::Json;
using core::UsageError;

Json parse(std::string_view log) {
  try {
    return Json::parse(log);
  } catch (const Json::exception&) {
    throw UsageError("it is no whole JSON text; a run that broke off leaves none");
  }
}

template <class T>
T at(const Json& object, const char* key, const std::string& where) {
  try {
    return object.at(key).get<T>();
  } catch (const Json::exception&) {
    throw UsageError(fmt::format("{}: '{}' is missing or of another kind", where, key));
  }
}

std::string collective_from(const Json& log, const Hints& hints) {
  std::string program;
  if (log.contains("args") && log["args"].is_array() && !log["args"].empty() && log["args"][0].is_string()) {
    program = log["args"][0].get<std::string>();
  }
  const std::string file = program.substr(program.rfind('/') + 1);
  std::string collective = kind_of(file.ends_with("_perf") ? nccl_kind(file) : "", hints, 0);
  if (!collective.empty()) return collective;
  throw UsageError(
      fmt::format("'args' does not name a collective's program ('{}'); give --collective allreduce", program));
}

std::int64_t ranks_from(const Json& log) {
  const auto config = log.find("config");
  if (config == log.end() || !config->contains("devices") || !(*config)["devices"].is_array()) return 0;
  // One entry a process, which may drive several GPUs.
  std::int64_t each = 1;
  for (const char* key : {"nthreads", "ngpus"}) each *= config->value(key, std::int64_t{1});
  return each * static_cast<std::int64_t>((*config)["devices"].size());
}

/// Nothing where it has no time.
std::optional<core::Point> half(const Json& row, const Json& times, const std::string& where,
                                const core::Factors& common, bool in_place, Faults& faults) {
  core::Point p;
  p.experiment = "allreduce";
  p.factors = common;
  p.factors[core::Factor::size_bytes] = at<std::int64_t>(row, "size", where);
  p.factors[core::Factor::dtype] = nccl_type(at<std::string>(row, "type", where), 0);
  if (const auto op = at<std::string>(row, "redop", where); op != "none") p.factors[core::Factor::op] = op;
  p.factors[core::Factor::in_place] = in_place;
  const std::string root = row.value("root", std::string("-1")).c_str();
  if (const std::size_t digit = root.find_first_not_of(' '); digit < root.size() && root.substr(digit) > "0")
    add_problem(p, fmt::format("root={}", root.substr(digit)));
  const bool of_cpu_time = times.contains("cpu_time");
  if (of_cpu_time) add_problem(p, "time=cpu");
  const double seconds = at<double>(times, of_cpu_time ? "cpu_time" : "time", where) * 1e-6;
  const double algbw = at<double>(times, "alg_bw", where) * 1e9, busbw = at<double>(times, "bus_bw", where) * 1e9;
  if (!(seconds > 0)) {
    ++faults.without_time;
    return std::nullopt;
  }
  p.metrics[core::Metric::time_s] = mean_time(seconds);
  p.metrics[core::Metric::algbw_bytes_per_s] = algbw;
  p.metrics[core::Metric::busbw_bytes_per_s] = busbw;
  if (times.contains("nwrong") && times["nwrong"].is_number()) set_wrong(p, times["nwrong"].get<double>());
  constexpr double digit = 1e3;  // six digits of GB/s
  check_rates(p, algbw, busbw, digit, faults);
  return p;
}

/// With per-iteration times the median and the tail are known, and the iterations themselves.
void add_iterations(core::Point& p, const Json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->contains("times_us") || !(*found)["times_us"].is_array()) return;
  std::vector<double> seconds;
  for (const Json& t : (*found)["times_us"])
    if (t.is_number() && t.get<double>() > 0) seconds.push_back(t.get<double>() * 1e-6);
  if (seconds.empty()) return;
  p.metrics[core::Metric::time_s] = core::summarise(seconds);
  p.raw_times_s = std::move(seconds);
}

}  // namespace

bool is_nccl_tests_json(std::string_view log) {
  return log.substr(0, 64).find("\"version\"") != std::string_view::npos &&
         log.find("\"nccl_version\"") != std::string_view::npos;
}

Imported read_nccl_tests_json(std::string_view log, const Hints& hints) {
  const Json json = parse(log);
  if (!json.is_object() || !json.contains("results") || !json["results"].is_array())
    throw UsageError("it has no 'results'");
  Imported out;
  out.run().info.version = fmt::format("nccl-tests, NCCL {}", json.value("nccl_version", 0));
  const core::Point common = [&] {
    core::Point p = collective_point(collective_from(json, hints), ranks_of(ranks_from(json), hints, 0), 1, hints);
    p.factors[core::Factor::algorithm] = std::string("nccl");
    p.factors[core::Factor::device] = std::string("cuda");
    return p;
  }();
  std::size_t number = 0;
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
      auto p = half(row, row[key], where, common.factors, in_place, faults);
      if (!p) continue;
      add_iterations(*p, row, in_place ? "in_place_per_iter" : "out_of_place_per_iter");
      out.run().points.push_back(std::move(*p));
    }
  }
  out.faults = faults.text();
  out.silent = "the spread of times, unless iterations were recorded one by one";
  return out;
}

}  // namespace gradmeter::importers
