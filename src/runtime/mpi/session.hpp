// SPDX-License-Identifier: Apache-2.0
// The functions of MPI that a program can use without MPI's header: initialisation, finalisation, the world, whether
// MPI takes device memory, and the choice among Open MPI's all-reduce algorithms.
#pragma once
#include <string>

#include "runtime/communicator.hpp"

namespace gradmeter::runtime {

/// The threads that may call MPI. serialized: several threads, one at a time (the main thread and a progress thread).
/// funneled: only the main thread; other threads may run, but do not call MPI. With Open MPI 4.1 an 8-byte all-reduce
/// takes 0.61 us funneled and 0.65 us serialized (and 0.53 us in a program without any other thread).
enum class MpiThreads { funneled, serialized };

/// Initialises MPI and finalises it at the end of the scope.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv, MpiThreads threads = MpiThreads::serialized);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  bool serialized() const { return serialized_; }
  /// A duplicate of MPI's world. Collective.
  static Communicator world();
  static bool running();
  /// The level of thread support that the library grants: "single", "funneled", "serialized" (which adds to the time of
  /// small calls) or "multiple"; empty without a session.
  static std::string thread_level();
  /// The mechanism by which Open MPI copies long messages between ranks of a node: "cma" (process_vm_readv), "xpmem",
  /// "knem", "emulated", or "none" (two copies, through shared memory). Empty without a session, and for a library
  /// without Open MPI's component vader or sm. Cost: 0.2 to 0.3 s the first time, as for `forced_all_reduce_refusal`.
  static std::string single_copy();
  static int world_size();
  /// Ends all ranks at once with this exit code.
  [[noreturn]] static void abort(int code);
  /// "Open MPI 4.1.4": the library's own name and version, shortened to its first clause. Needs no session.
  static std::string library_version();

 private:
  bool serialized_;
};

/// The reason why no MPI collective can be called in this process, and what to do about it; empty: they can be called
/// while a session runs.
std::string mpi_refusal();

/// Whether MPI can send and receive device memory directly.
enum class CudaAwareMpi {
  no_mpi,   ///< a build without MPI
  unknown,  ///< this MPI cannot be asked; transport cuda-mpi is refused as for `no`
  no,       ///< device memory must first be copied to host memory
  yes
};

/// Asks the library while MPI runs (Open MPI: MPIX_Query_cuda_support; MPICH: MPIX_GPU_query_support). While MPI does
/// not run, gives what Open MPI's headers say of its build, and `unknown` for other libraries. A `no` may be wrong,
/// since UCX may carry device memory anyway. Source: Open MPI 4.1 and 5.0, MPIX_Query_cuda_support(3); MPICH 4.0,
/// MPIX_GPU_query_support.
CudaAwareMpi cuda_aware_mpi();

/// One of Open MPI's all-reduce algorithms, which MPI_T can force for one communicator; numbers and names are
/// coll/tuned's (Open MPI 4.1, coll_tuned_allreduce_decision.c).
enum class ForcedAllReduce : int {
  basic_linear = 1,
  nonoverlapping = 2,
  recursive_doubling = 3,
  ring = 4,
  segmented_ring = 5,
  rabenseifner = 6
};

/// Sets the environment variable that lets algorithms of Open MPI be forced later (coll_tuned_use_dynamic_rules). Must
/// be called before MPI starts. As long as no algorithm is forced, Open MPI chooses as usual. If the user has set the
/// variable, the user's value stays.
void allow_forced_algorithms();

/// The reason why this algorithm cannot be forced here, and what to do about it; empty: it can. Without a session, it
/// only checks that the library is Open MPI. Cost: 0.2 to 0.3 s the first time (Open MPI loads all its components),
/// then microseconds.
std::string forced_all_reduce_refusal(ForcedAllReduce);

/// Duplicates the communicator; the duplicate's MPI_Allreduce uses this algorithm for any size. Collective. coll/tuned
/// reads the forced values when a communicator is made, so they are set only during the duplication, and other
/// communicators are not affected. `segment_bytes`: at least 1 for the segmented ring, which divides by it; 0 for the
/// others, which have no segments.
/// Errors: BackendError where MPI_T refuses; UsageError with forced_all_reduce_refusal, or for a wrong segment.
Communicator duplicate_forced(const Communicator&, ForcedAllReduce, int segment_bytes);

}  // namespace gradmeter::runtime
