// SPDX-License-Identifier: Apache-2.0
#include "bench/train/trace.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {
namespace {

namespace fs = std::filesystem;
using core::Json;

/// Whole nanoseconds, as viewers use, so that rounding cannot make intervals that touch overlap.
std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1000; }

Json metadata(const char* what, int rank, int lane, const char* key, const Json& value) {
  Json out;
  out["name"] = what;
  out["ph"] = "M";
  out["pid"] = rank;
  out["tid"] = lane;
  out["args"][key] = value;
  return out;
}

std::string lane_name(int lane) {
  if (lane == RankEvents::compute_lane) return "compute";
  if (lane < RankEvents::server_lane) return fmt::format("communication {}", lane);
  if (lane == RankEvents::server_lane) return "server: compute";
  return fmt::format("server: communication {}", lane - RankEvents::server_lane);
}

}  // namespace

void RankEvents::add_call(Kind kind, std::size_t step, const dataparallel::CallRecord& c) {
  const auto& done = c.completion;
  events_.push_back(
      {kind, c.label, {done.started, done.finished}, step, done.bytes_sent, std::max(0.0, done.started - done.posted)});
}

void RankEvents::add(std::size_t step, const dataparallel::StepRecord& r) {
  // A rank that only serves takes no steps.
  if (r.step.length() > 0) events_.push_back({Kind::step, fmt::format("step {}", step), r.step, step});
  for (const auto& c : r.computations) events_.push_back({Kind::compute, std::string(c.label), c.when, step});
  for (const auto& w : r.waits) events_.push_back({Kind::wait, fmt::format("wait: {}", w.label), w.when, step});
  for (const auto& c : r.calls) add_call(Kind::call, step, c);
}

void RankEvents::add_background(std::size_t step, const dataparallel::StepRecord& r) {
  for (const auto& c : r.computations) events_.push_back({Kind::server_compute, std::string(c.label), c.when, step});
  for (const auto& c : r.calls) add_call(Kind::server_call, step, c);
}

double RankEvents::first_begin(const runtime::DriftModel& clock) const {
  double first = std::numeric_limits<double>::infinity();
  for (const TraceEvent& e : events_) first = std::min(first, clock.reference(e.when.begin));
  return first;
}

/// The largest uncertainty of the clock while the events lasted [s].
double RankEvents::uncertainty(const runtime::DriftModel& clock) const {
  double most = 0;
  for (const TraceEvent& e : events_)
    most = std::max({most, clock.uncertainty(e.when.begin), clock.uncertainty(e.when.end)});
  return most;
}

std::vector<int> RankEvents::lanes() const {
  std::vector<std::size_t> order(events_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [this](std::size_t i) { return events_[i].when.begin; });
  std::vector<int> lanes(events_.size(), compute_lane);
  std::vector<double> worker, server;  // for each lane, until when it is taken
  for (const std::size_t i : order) {
    const TraceEvent& e = events_[i];
    if (e.kind == Kind::server_compute) lanes[i] = server_lane;
    if (e.kind != Kind::call && e.kind != Kind::server_call) continue;
    auto& taken = e.kind == Kind::call ? worker : server;
    const auto free = std::ranges::find_if(taken, [&](double until) { return until <= e.when.begin; });
    const auto lane = static_cast<int>(free - taken.begin());
    if (free == taken.end()) taken.push_back(0);
    taken[static_cast<std::size_t>(lane)] = e.when.end;
    lanes[i] = lane + (e.kind == Kind::call ? first_call_lane : first_server_call_lane);
  }
  return lanes;
}

core::Json RankEvents::describe(const TraceEvent& e, int lane, double origin, const runtime::DriftModel& clock) const {
  constexpr const char* categories[] = {"step",          "compute",        "wait",
                                        "communication", "server compute", "server communication"};
  const std::int64_t begin = nanoseconds(clock.reference(e.when.begin) - origin);
  const std::int64_t end = nanoseconds(clock.reference(e.when.end) - origin);
  Json json;
  json["name"] = e.name;
  json["cat"] = categories[static_cast<std::size_t>(e.kind)];
  json["ph"] = "X";
  json["ts"] = microseconds(begin);
  json["dur"] = microseconds(std::max<std::int64_t>(0, end - begin));
  json["pid"] = rank_;
  json["tid"] = lane;
  json["args"]["step"] = e.step;
  if (e.kind == Kind::call || e.kind == Kind::server_call) {
    json["args"]["bytes"] = e.bytes;
    json["args"]["queued_us"] = microseconds(nanoseconds(e.queued_s));
  }
  return json;
}

core::Json RankEvents::events(double origin, const runtime::DriftModel& clock) const {
  Json out = Json::array();
  const auto add_metadata = [&](const char* what, int lane, const char* key, const Json& value) {
    out.push_back(metadata(what, rank_, lane, key, value));
  };
  add_metadata("process_name", 0, "name", fmt::format("rank {} on {}", rank_, host_));
  add_metadata("process_labels", 0, "labels", fmt::format("clock within {:.1f} us", 1e6 * uncertainty(clock)));
  add_metadata("process_sort_index", 0, "sort_index", rank_);
  const std::vector<int> event_lanes = lanes();
  for (const int lane : std::set<int>(event_lanes.begin(), event_lanes.end())) {
    add_metadata("thread_name", lane, "name", lane_name(lane));
    add_metadata("thread_sort_index", lane, "sort_index", lane);
  }
  for (std::size_t i = 0; i < events_.size(); ++i) out.push_back(describe(events_[i], event_lanes[i], origin, clock));
  return out;
}

void check_trace_path(const std::string& path, bool replace) {
  std::error_code error;
  if (fs::is_directory(path, error)) throw core::UsageError(fmt::format("{}: is a directory; give a file", path));
  if (!replace && fs::exists(path, error)) throw core::UsageError(fmt::format("{}: exists; --force replaces it", path));
  const fs::path parent = fs::path(path).parent_path(), folder = parent.empty() ? fs::path(".") : parent;
  if (!fs::is_directory(folder, error)) {
    throw core::UsageError(fmt::format("{}: there is no directory {}; make it first", path, folder.string()));
  }
}

TraceFile::TraceFile(const std::string& path, bool replace) : path_(path), temporary_path_(path + ".part") {
  check_trace_path(path, replace);
  out_.open(temporary_path_, std::ios::binary | std::ios::trunc);
  if (!out_) throw core::UsageError(fmt::format("{}: cannot be written; choose another place", path));
  out_ << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
}

TraceFile::~TraceFile() {
  std::error_code error;
  if (out_.is_open()) fs::remove(temporary_path_, error);
}

void TraceFile::add(const std::string& events) {
  for (const Json& event : core::parse_json(events)) {
    out_ << std::exchange(separator_, ",\n") << core::json_text(event);
  }
}

void TraceFile::close() {
  out_ << "\n]}\n";
  out_.close();
  std::error_code error;
  if (out_) fs::rename(temporary_path_, path_, error);
  if (!out_ || error) {
    fs::remove(temporary_path_, error);
    throw core::BackendError("file system", "write", fmt::format("'{}' broke off", path_));
  }
}

void gather_trace(const runtime::Communicator& c, const RankEvents& mine, const runtime::DriftModel& clock,
                  const std::string& path, bool replace) {
  const double origin = -c.max(-mine.first_begin(clock));
  std::optional<TraceFile> file;
  if (c.rank() == 0) file.emplace(path, replace);
  runtime::collect(c, core::json_text(mine.events(origin, clock)),
                   [&](const std::string& events) { file->add(events); });
  if (file) file->close();
}

namespace {

std::size_t first_step(const TraceRequest& r, std::size_t steps) {
  constexpr std::size_t usual = 5;  // past the first steps, which touch memory for the first time
  if (!r.first) return steps >= usual + r.count ? usual : 0;
  if (*r.first < steps) return *r.first;
  throw core::UsageError(fmt::format("--trace-steps {}: the run has {} steps, the first is 0", *r.first, steps));
}

}  // namespace

Trace::Trace(TraceRequest r, std::size_t steps, RankEvents t)
    : request_(std::move(r)), first_(first_step(request_, steps)), rank_events_(std::move(t)) {}

void Trace::before(std::size_t step, dataparallel::Probe& probe) const {
  if (step == first_) probe.keep_background(true);
}

void Trace::after(std::size_t step, const dataparallel::StepRecord& record, dataparallel::Probe& probe) {
  if (!has(step)) return;
  rank_events_.add(step, record);
  rank_events_.add_background(step, probe.take_background());
  if (!has(step + 1)) probe.keep_background(false);
}

bool Trace::write(const runtime::Communicator& c, const runtime::DriftModel& clock) const {
  if (!c.any(!rank_events_.empty())) return false;
  gather_trace(c, rank_events_, clock, request_.path, request_.replace);
  return true;
}

}  // namespace gradmeter::bench
