// Open MPI's tuning knobs from inside, by MPI_T: one of its all-reduce algorithms, forced for one communicator.
#pragma once
#include <string>

#include "runtime/communicator.hpp"

namespace gradmeter::runtime {

/// As coll/tuned numbers and names them (Open MPI 4.1, coll_tuned_allreduce_decision.c).
enum class ForcedAllReduce : int {
  basic_linear = 1,
  nonoverlapping = 2,
  recursive_doubling = 3,
  ring = 4,
  segmented_ring = 5,
  rabenseifner = 6
};

/// To be called before MPI starts: Open MPI listens to forced algorithms only when it was told so at its start. With no
/// algorithm forced it then decides as ever. A value that the user gave stays.
void listen_to_forced_algorithms();

/// Why no algorithm can be forced here, with what to do; empty: it can. Without a session: empty for Open MPI.
/// Cost: 0.2 to 0.3 s the first time (Open MPI loads all its components), then microseconds.
std::string forced_all_reduce_refusal(ForcedAllReduce);

/// Collective. A duplicate whose MPI_Allreduce uses this algorithm whatever the size. coll/tuned reads the forced
/// values when it takes on a new communicator: they are set around the duplication alone, so that all others stay as
/// they were. `segment_bytes`: of the segmented ring, which divides by it, so at least 1; the others have no segments
/// and take 0. Errors: BackendError where MPI_T refuses; UsageError with forced_all_reduce_refusal, or for a wrong
/// segment.
Communicator duplicate_forced(const Communicator&, ForcedAllReduce, int segment_bytes);

}  // namespace gradmeter::runtime
