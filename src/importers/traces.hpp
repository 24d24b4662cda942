// SPDX-License-Identifier: Apache-2.0
// Traces of training: their steps, to be replayed and as rows, and the facts that each format lacks.
#pragma once
#include <string>
#include <string_view>

#include "dataparallel/replay/step_trace.hpp"
#include "importers/importers.hpp"

namespace gradmeter::importers {

struct ReadTrace {
  dataparallel::StepTrace trace;
  std::string host;
  std::int64_t rank = -1;            ///< the rank that was traced; -1: the trace does not say
  std::size_t calls_of_no_size = 0;  ///< collectives whose buffer size the trace does not give
  std::size_t groups = 1;            ///< process groups of Chakra's collectives
  std::size_t calls_beside = 0;      ///< calls of gloo or MPI that were recorded beside those of NCCL, and are left out
  bool says_elements = true;  ///< false: the trace gives no element type; one whose size divides the buffer's is used
};

/// Reads PyTorch's profiler traces. Steps are those of `ProfilerStep#`. On a GPU, computation is kernels, copies and
/// fills, and collectives are NCCL's kernels with the metadata that PyTorch adds. On a CPU, computation is operators,
/// and collectives are the labels of gloo and MPI on their threads. Errors: UsageError for text that is no whole JSON,
/// has no steps, or has events without times.
ReadTrace read_kineto_trace(std::string_view json);

/// Reads PyTorch's execution traces, schemas 1.0 and 1.1. Steps are those of `ProfilerStep#`, or the whole trace is one
/// step. Collectives are nodes `record_param_comms`, or the labels of gloo and MPI, in the order of their ids. A step
/// waits for them where the trace does, else at its end; barriers are left out. There are no times. Errors: UsageError
/// "node 7: ..." for nodes not of this form.
ReadTrace read_execution_trace(std::string_view json);

/// Reads Chakra's traces as its jsonizer prints them; a whole trace is one step. A node begins when its dependencies
/// have ended. Computation of the host, computation of the device, and collectives each run one after another. `ranks`:
/// needed for all-gathers, since traces give the size of one rank's part; 0: unknown. Errors: UsageError "line 12: ..."
/// for nodes not of this form, and for dependencies that form a cycle.
ReadTrace read_chakra_trace(std::string_view json, std::int64_t ranks);

/// Reads a file in whichever of these formats, compressed or not; a file of no known format is read as kineto's.
ReadTrace read_trace(std::string_view bytes, std::int64_t ranks);

/// A row of `replay` for the steps, and a row of `allreduce` for the calls of each kind, size, element type and group.
Imported trace_rows(const ReadTrace&, const Hints&);

}  // namespace gradmeter::importers
