// Traces of PyTorch's profiler (Kineto): its steps, for a replay, and what the trace does not say.
#pragma once
#include <string>
#include <string_view>

#include "dataparallel/replay/step_trace.hpp"

namespace gradmeter::importers {

struct KinetoTrace {
  dataparallel::StepTrace trace;
  std::string version, host;
  std::int64_t rank = -1;            ///< whose trace it is; -1: it does not say
  std::size_t calls_of_no_size = 0;  ///< collectives whose buffers the trace does not say
};

/// Steps are those of `ProfilerStep#`. On a GPU computation is kernels, copies and fills, and collectives are NCCL's
/// kernels with the metadata that PyTorch adds; on a CPU computation is operators, and collectives are what gloo and
/// MPI note on their threads. Errors: UsageError for text that is no whole JSON, has no steps, or events without times.
KinetoTrace read_kineto_trace(std::string_view json);

}  // namespace gradmeter::importers
