// The vendor's collectives as they are, one call each: blocking, or under way behind a request.
#pragma once
#include <vector>

#include "runtime/mpi.hpp"

namespace gradmeter::runtime {

/// Calls under way, at most two of them. MPI may use the buffers and cuts until `done`; whoever owns this waits for it.
class MpiRequests {
 public:
  /// MPI_Test on each.
  bool done();
  MPI_Request* next() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

 private:
  std::vector<MPI_Request> requests_;
};

/// How n elements are cut into blocks, one for each rank.
struct MpiCuts {
  std::vector<int> counts, begins;
};

/// in == out: in place. Elements are counted in the reduction's type.
struct MpiBuffers {
  const std::byte* in;
  std::byte* out;
  std::size_t count;
};

// Collective. `later` null: the blocking call; else the non-blocking one. Counts must fit an int.
// Errors: BackendError with MPI's own text.

void mpi_all_reduce(const Communicator&, MpiBuffers, const Reduction&, MpiRequests* later);
/// The rank's block goes to where `out` holds it; in place, to the beginning of the buffer, as MPI has it.
void mpi_reduce_scatter(const Communicator&, MpiBuffers, const MpiCuts&, const Reduction&, MpiRequests* later);
/// The rank gives its block of `in`.
void mpi_all_gather(const Communicator&, MpiBuffers, const MpiCuts&, const Reduction&, MpiRequests* later);
/// The same two for equal blocks, as most callers have them: the count is a multiple of the ranks.
void mpi_reduce_scatter(const Communicator&, MpiBuffers, const Reduction&, MpiRequests* later);
void mpi_all_gather(const Communicator&, MpiBuffers, const Reduction&, MpiRequests* later);
/// In place only: `out`.
void mpi_broadcast(const Communicator&, MpiBuffers, int root, const Reduction&, MpiRequests* later);
/// The count must be a multiple of the ranks.
void mpi_all_to_all(const Communicator&, MpiBuffers, const Reduction&, MpiRequests* later);
/// To the next rank, from the one before. In place only as the blocking call (MPI 3.1 has no MPI_Isendrecv_replace).
void mpi_send_receive(const Communicator&, MpiBuffers, const Reduction&, MpiRequests* later);

}  // namespace gradmeter::runtime
