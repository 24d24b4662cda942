// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: a world of ranks without a launcher, for bare machines, sanitizers and tests.
#pragma once
#include <functional>
#include <stdexcept>

#include "runtime/communicator.hpp"

namespace gradmeter::runtime {

/// Thrown where a rank waits although another rank of its world has ended by an error.
class PeerFailed : public std::runtime_error {
 public:
  PeerFailed() : std::runtime_error("another rank has ended by an error") {}
};

/// Runs `body` on `ranks` threads, with the communicator of a world of these ranks, and returns when all threads have
/// ended. The threads have the floating-point mode of the calling thread. Further threads that a rank starts (OpenMP's,
/// progress) are named after the rank.
/// Errors: the exception of the first rank that threw; UsageError for less than one rank. After the first exception,
/// calls of communicators that wait throw PeerFailed on the other ranks; loops that poll a transport must call
/// `throw_if_abandoned` themselves.
void run_thread_ranks(int ranks, const std::function<void(Communicator)>& body);

/// Binds the calling rank, and the threads that it makes, to its share of the cores that the process may use, as
/// launchers bind processes. A share is a run of consecutive cores. With fewer cores than ranks, and where the kernel
/// refuses, nothing is bound.
void bind_to_share(const Communicator& world);

/// True if ranks of `run_thread_ranks` are in this process now. MPI does not know these ranks.
bool thread_ranks_running();

/// Throws PeerFailed if ranks are threads and one of them has ended by an error. Cost: a load.
void throw_if_abandoned(const Communicator&);

}  // namespace gradmeter::runtime
