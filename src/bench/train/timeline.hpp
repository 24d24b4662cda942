// What every rank did when, as a file for trace viewers: Perfetto (ui.perfetto.dev), chrome://tracing.
// Format: "Trace Event Format", Google, complete events; times in microseconds of rank 0's clock from the first event.
#pragma once
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "dataparallel/decorators/decomposition.hpp"
#include "runtime/communicator.hpp"
#include "runtime/time/drift_model.hpp"

namespace gradmeter::bench {

/// One rank's events. A rank is a process of the trace, a lane a thread of it. Lane 0 has the steps with the
/// computations and waits in them; the lanes after it have the calls, as many as overlapped. Server lanes have the same
/// of the rank's server task.
class Timeline {
 public:
  static constexpr int compute_lane = 0, first_call_lane = 1, server_lane = 1000, first_server_call_lane = 1001;

  Timeline(int rank, std::string host) : rank_(rank), host_(std::move(host)) {}

  /// What the worker did in a step.
  void add(std::size_t step, const dataparallel::StepRecord&);
  /// What the rank's server task did until that step ended; its `step` interval is not used.
  void add_background(std::size_t step, const dataparallel::StepRecord&);

  bool empty() const { return events_.empty(); }
  /// The first event's, in rank 0's clock [s]; infinite without events. `clock`: this host's, as known at the end.
  double begin(const runtime::DriftModel& clock) const;
  /// An array of the format's events, ts 0 at `origin` (rank 0's clock).
  core::Json events(double origin, const runtime::DriftModel& clock) const;

 private:
  enum class Kind : std::uint8_t { step, compute, wait, call, server_compute, server_call };
  struct TraceEvent {
    Kind kind;
    std::string name;
    dataparallel::Interval when;  ///< this host's clock
    std::size_t step;
    std::uint64_t bytes = 0;
    double queued_s = 0;  ///< from posting to start
  };
  void add_call(Kind, std::size_t step, const dataparallel::CallRecord&);
  std::vector<int> lanes() const;  ///< by event
  core::Json describe(const TraceEvent&, int lane, double origin, const runtime::DriftModel&) const;
  double uncertainty(const runtime::DriftModel&) const;

  int rank_;
  std::string host_;
  std::vector<TraceEvent> events_;
};

/// Errors: UsageError when the file exists (unless it is to be replaced) or cannot be made there.
void check_trace_path(const std::string& path, bool replace);
/// A file of every rank's events, complete or absent: written under another name, and renamed by `close`.
/// Errors: those of check_trace_path; BackendError.
class TraceFile {
 public:
  TraceFile(const std::string& path, bool replace);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  /// One rank's array of events, as text.
  void add(const std::string& events);
  void close();

 private:
  std::string path_, temporary_path_;
  std::ofstream out_;
  const char* separator_ = "";
};

/// Collective: rank 0 writes all ranks' events to one file, with one rank's in memory at a time.
void gather_trace(const runtime::Communicator&, const Timeline& mine, const runtime::DriftModel& clock,
                  const std::string& path, bool replace);

}  // namespace gradmeter::bench
