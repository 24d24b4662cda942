// SPDX-License-Identifier: Apache-2.0
// The rows of MPI in a build without it: refused, with what to do.
#include "allreduce/vendor/vendor.hpp"
#include "core/error.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::allreduce {

std::string mpi_refusal(const Request&) { return runtime::mpi_refusal(); }
std::string mpi_vector_refusal(const Request&) { return runtime::mpi_refusal(); }
std::string ompi_refusal(const Request&) { return runtime::mpi_refusal(); }

std::unique_ptr<Collective> bind_mpi(const Request&, const GroupConnection&, const ExchangeSpec&) {
  throw core::UsageError(runtime::mpi_refusal());
}
std::unique_ptr<Collective> bind_ompi(const Request& r, const GroupConnection& connection, const ExchangeSpec& spec) {
  return bind_mpi(r, connection, spec);
}

}  // namespace gradmeter::allreduce
