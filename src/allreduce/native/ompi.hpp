// Open MPI's own all-reduce algorithms, each forced: what `mpi` would reach with the best choice.
#pragma once
#include "allreduce/registry.hpp"

namespace gradmeter::allreduce {

/// The rows `ompi-basic-linear`, `ompi-nonoverlapping`, `ompi-recursive-doubling`, `ompi-ring`,
/// `ompi-segmented-ring:segment=1M` and `ompi-rabenseifner`: all-reduce, any ranks, blocking. Open MPI itself falls
/// back where an algorithm cannot serve (a ring of fewer elements than ranks: recursive doubling). Refused, with the
/// reason, where the MPI is not Open MPI or does not listen to forced algorithms. Source: Open MPI 4.1,
/// ompi/mca/coll/base/coll_base_allreduce.c
std::string ompi_refusal(const Request&);
std::unique_ptr<Collective> bind_ompi(const Request&, const Site&, const ExecutorOptions&);

}  // namespace gradmeter::allreduce
