// SPDX-License-Identifier: Apache-2.0
// Reads the steps of training traces, for `gradmeter replay` and as rows of a result file, and notes what a trace does
// not state.
#pragma once
#include <string>
#include <string_view>

#include "dataparallel/replay/step_trace.hpp"
#include "importers/importers.hpp"

namespace gradmeter::importers {

/// A trace as it was read, and what it does not state.
struct ImportedTrace {
  dataparallel::StepTrace trace;
  std::string host;
  std::int64_t rank = -1;              ///< the rank that was traced; -1: the trace does not say
  std::size_t calls_without_size = 0;  ///< collectives whose buffer size the trace does not give
  std::size_t groups = 1;  ///< number of process groups among the collectives; 1 unless the trace is Chakra's
  /// Calls of gloo or MPI that the trace records beside those of NCCL; they are left out.
  std::size_t calls_of_other_backends = 0;
  /// False if the trace gives no element types: each call then gets a type whose size divides the buffer's size.
  bool has_element_types = true;
};

/// Reads PyTorch's profiler traces. Steps are those of `ProfilerStep#`. On a GPU, computation is kernels, copies and
/// fills, and collectives are NCCL's kernels with the metadata that PyTorch adds. On a CPU, computation is operators,
/// and collectives are the annotations of gloo and MPI ("gloo:all_reduce") on their threads. Errors: UsageError for
/// text that is no whole JSON, has no steps, or has events without times.
ImportedTrace read_kineto_trace(std::string_view json);

/// Reads PyTorch's execution traces, schemas 1.0 and 1.1. Steps are those of `ProfilerStep#`, or else the whole trace
/// is one step. Collectives are the nodes `record_param_comms`, or the annotations of gloo and MPI, in the order of
/// their ids. A step waits for a collective at the place where the trace records the wait, or at the step's end if it
/// records none. Barriers are left out. These traces have no times. Errors: UsageError "node 7: ..." for nodes not of
/// this form.
ImportedTrace read_execution_trace(std::string_view json);

/// Reads Chakra's traces as its jsonizer prints them; a whole trace is one step. A node begins when its dependencies
/// have ended. In each of three classes (computation of the host, computation of the device, collectives), nodes run
/// one after another. `ranks`: needed for all-gathers, gathers and scatters, since traces give the size of one rank's
/// part; 0: unknown, and these collectives have no size.
/// Errors: UsageError "line 12: ..." for nodes not of this form, and for dependencies that form a cycle.
ImportedTrace read_chakra_trace(std::string_view json, std::int64_t ranks);

/// Reads a file in any of these formats, compressed or not; a file of no known format is read as kineto's.
ImportedTrace read_trace(std::string_view bytes, std::int64_t ranks);

/// Makes one row of `replay` for all steps, and one row of `allreduce` for all calls with equal collective, size,
/// element type, number of ranks, operation and factor `problem` (such as root=3,group=1). user_facts: what the trace
/// does not say and the user adds.
Imported trace_rows(const ImportedTrace&, const UserFacts& user_facts);

}  // namespace gradmeter::importers
