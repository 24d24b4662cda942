// SPDX-License-Identifier: Apache-2.0
// Stand-ins for MPI's functions in a build without MPI, where ranks are always threads.
#include <cstdlib>

#include "core/error.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::runtime {

std::string mpi_refusal() {
  return "built without MPI: use --thread-ranks, or install MPI (Debian: libopenmpi-dev openmpi-bin) and configure "
         "again";
}

MpiSession::MpiSession(int&, char**&, MpiThreads) : serialized_(false) { throw core::UsageError(mpi_refusal()); }
MpiSession::~MpiSession() = default;
Communicator MpiSession::world() { throw core::UsageError(mpi_refusal()); }
int MpiSession::world_size() { return 1; }
void MpiSession::abort(int code) { std::_Exit(code); }
bool MpiSession::running() { return false; }
std::string MpiSession::library_version() { return "none"; }
std::string MpiSession::thread_level() { return {}; }
std::string MpiSession::single_copy() { return {}; }
CudaAwareMpi cuda_aware_mpi() { return CudaAwareMpi::no_mpi; }

}  // namespace gradmeter::runtime
