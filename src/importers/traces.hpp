// Traces of training: their steps, for a replay and as rows, and what each format does not say.
#pragma once
#include <string>
#include <string_view>

#include "dataparallel/replay/step_trace.hpp"
#include "importers/importers.hpp"

namespace gradmeter::importers {

struct ReadTrace {
  dataparallel::StepTrace trace;
  std::string host;
  std::int64_t rank = -1;            ///< whose trace it is; -1: it does not say
  std::size_t calls_of_no_size = 0;  ///< collectives whose buffers the trace does not say
  std::size_t groups = 1;            ///< process groups of Chakra's collectives
  bool says_elements = true;         ///< false: an element type is only what divides the buffer
};

/// Steps are those of `ProfilerStep#`. On a GPU computation is kernels, copies and fills, and collectives are NCCL's
/// kernels with the metadata that PyTorch adds; on a CPU computation is operators, and collectives are what gloo and
/// MPI note on their threads. Errors: UsageError for text that is no whole JSON, has no steps, or events without times.
ReadTrace read_kineto_trace(std::string_view json);

/// PyTorch's execution traces, schemas 1.0 and 1.1: steps are those of `ProfilerStep#`, or all is one. Collectives are
/// nodes `record_param_comms`, of gloo and MPI their labels, in the order of their ids, waited for where the trace has
/// a wait, else at the step's end; barriers are left out. There are no times. Errors: UsageError "node 7: ..." for what
/// is not of this form.
ReadTrace read_execution_trace(std::string_view json);

/// Chakra's traces as its jsonizer prints them, a whole trace as one step: nodes begin when what they depend on has
/// ended, computation of the host and of the device one after another each, and collectives one after another.
/// `ranks`: of traces whose all-gathers need it, since they have one rank's part; 0: unknown.
/// Errors: UsageError "line 12: ..." for what is not of this form, and for dependencies that form a cycle.
ReadTrace read_chakra_trace(std::string_view json, std::int64_t ranks);

/// A file of whichever of these formats it is, compressed or not; kineto's where it is none. `ranks` as above.
ReadTrace read_trace(std::string_view bytes, std::int64_t ranks);

/// A row of `replay` for the steps, and rows of `allreduce` for calls of one kind, size, element type and group.
Imported trace_rows(const ReadTrace&, const Hints&);

}  // namespace gradmeter::importers
