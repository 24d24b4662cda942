// Which steps of a training run are traced, and what is recorded.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "bench/train/timeline.hpp"
#include "dataparallel/decorators/probe.hpp"

namespace gradmeter::bench {

/// Everything that every rank did in some steps, for a trace viewer.
struct TraceRequest {
  std::string path;
  std::optional<std::size_t> first = {};  ///< empty: step 5, or the beginning of a shorter run
  std::size_t count = 20;                 ///< at most
  bool replace = false;                   ///< an existing file
};

class Trace {
 public:
  /// Errors: UsageError when the run of so many steps does not reach the first.
  Trace(TraceRequest, std::size_t steps, Timeline);
  /// Around each step of the run.
  void before(std::size_t step, dataparallel::Probe&) const;
  void after(std::size_t step, const dataparallel::StepRecord&, dataparallel::Probe&);
  /// Collective. False: no rank has made any of these steps, and there is no file.
  bool write(const runtime::Communicator&, const runtime::DriftModel& clock) const;

 private:
  bool has(std::size_t step) const { return step >= first_ && step - first_ < request_.count; }
  TraceRequest request_;
  std::size_t first_;
  Timeline timeline_;
};

}  // namespace gradmeter::bench
