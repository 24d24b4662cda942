// How MPI is to reduce each of our types: its own operators where it has them, ours where it lacks the type.
#pragma once
#include "allreduce/reduce.hpp"
#include "runtime/mpi/collectives.hpp"

namespace gradmeter::allreduce {

/// What MPI is to be told for this type and operation; `average` is a sum.
/// Errors: UsageError where check_supported throws it.
runtime::Reduction mpi_reduction(core::Element, Op);

}  // namespace gradmeter::allreduce
