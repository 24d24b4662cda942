// SPDX-License-Identifier: Apache-2.0
// The events of every rank in time, as a file for trace viewers: Perfetto (ui.perfetto.dev), chrome://tracing.
// Format: "Trace Event Format", Google, complete events; times in microseconds of rank 0's clock from the first event.
#pragma once
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "dataparallel/fabric/decorators/probe.hpp"
#include "runtime/clock.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// The events of one rank. In the trace a rank is a process, and its lanes are threads. Lane 0 has the steps with their
/// computations and waits. The lanes from `first_call_lane` on have the calls; there are as many of these lanes as
/// calls are ever under way at once. The lanes from `server_lane` on have the computations and calls of the rank's
/// server task.
class RankEvents {
 public:
  static constexpr int compute_lane = 0, first_call_lane = 1, server_lane = 1000, first_server_call_lane = 1001;

  RankEvents(int rank, std::string host) : rank_(rank), host_(std::move(host)) {}

  /// Adds what the worker did in a step.
  void add(std::size_t step, const dataparallel::StepRecord&);
  /// Adds what the rank's server task did up to the end of that step. The record's `step` interval is not used.
  void add_background(std::size_t step, const dataparallel::StepRecord&);

  bool empty() const { return events_.empty(); }
  /// The begin of the first event, by rank 0's clock [s]; infinite without events. `clock`: the relation of this host's
  /// clock to rank 0's, as known at the end.
  double first_begin(const runtime::DriftModel& clock) const;
  /// The events as a JSON array in the trace format; their times (ts) count from `origin`, a time of rank 0's clock.
  core::Json events(double origin, const runtime::DriftModel& clock) const;

 private:
  enum class Kind : std::uint8_t { step, compute, wait, call, server_compute, server_call };
  struct TraceEvent {
    Kind kind;
    std::string name;
    dataparallel::Interval when;  ///< by this host's clock
    std::size_t step;
    std::uint64_t bytes = 0;
    double queued_s = 0;  ///< time from posting to start
  };
  void add_call(Kind, std::size_t step, const dataparallel::CallRecord&);
  std::vector<int> lanes() const;  ///< the lane of each event
  core::Json describe(const TraceEvent&, int lane, double origin, const runtime::DriftModel&) const;
  double uncertainty(const runtime::DriftModel&) const;

  int rank_;
  std::string host_;
  std::vector<TraceEvent> events_;
};

/// Errors: UsageError when the file exists (unless it is to be replaced) or cannot be made there.
void check_trace_path(const std::string& path, bool replace);
/// A file of every rank's events. It is complete or absent: written under another name, and renamed by `close`.
/// Errors: those of check_trace_path; BackendError.
class TraceFile {
 public:
  TraceFile(const std::string& path, bool replace);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  /// Adds one rank's array of events, as text.
  void add(const std::string& events);
  void close();

 private:
  std::string path_, temporary_path_;
  std::ofstream out_;
  const char* separator_ = "";
};

/// Writes all ranks' events to one file. Rank 0 writes it, and holds one other rank's events in memory at a time.
/// Collective.
void gather_trace(const runtime::Communicator&, const RankEvents& mine, const runtime::DriftModel& clock,
                  const std::string& path, bool replace);

// Decides which steps of a training run are traced, and records them.

/// A request to record everything that every rank did in some steps, for a trace viewer.
struct TraceRequest {
  std::string path;
  std::optional<std::size_t> first = {};  ///< empty: step 5; 0 if the run has fewer than 5 + `count` steps
  std::size_t count = 20;                 ///< the most steps that are traced
  bool replace = false;                   ///< true: an existing file is replaced
};

class Trace {
 public:
  /// Errors: UsageError when the run ends before the first step that is to be traced.
  Trace(TraceRequest, std::size_t steps, RankEvents);
  /// `before` and `after` are called around each step of the run.
  void before(std::size_t step, dataparallel::Probe&) const;
  void after(std::size_t step, const dataparallel::StepRecord&, dataparallel::Probe&);
  /// Writes the file. Collective. Returns false, and writes none, where no rank has made any of the traced steps.
  bool write(const runtime::Communicator&, const runtime::DriftModel& clock) const;

 private:
  bool has(std::size_t step) const { return step >= first_ && step - first_ < request_.count; }
  TraceRequest request_;
  std::size_t first_;
  RankEvents rank_events_;
};

}  // namespace gradmeter::bench
