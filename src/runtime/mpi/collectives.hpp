// The vendor's collectives as they are, one call each: blocking, or under way behind a request.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "core/element.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::runtime {

/// Narrows a count for MPI 3's int arguments. Errors: BackendError when it does not fit.
int mpi_count(std::size_t n);

/// inout[i] = in[i] ∘ inout[i] for n elements; must be commutative, and must not throw.
using Combiner = void (*)(const std::byte* in, std::byte* inout, std::size_t n);

/// What MPI must be told to reduce elements of one type by one operation.
class Reduction {
 public:
  struct Handles;
  /// MPI's own type and operator. NaN, and zeros of both signs, in its min and max are as its vendor made them: the
  /// result may depend on the order of operands. Errors: BackendError for 16-bit and 8-bit floats, which MPI lacks.
  Reduction(core::Element, Combine);
  /// Any element, as so many bytes that only `combiner` understands. At most 64 different combiners a process.
  Reduction(core::Element, Combiner);

  const Handles& handles() const { return *handles_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<const Handles> handles_;
  std::size_t bytes_;
};

/// Calls under way, at most two of them. MPI may use the buffers and cuts until `done`; whoever owns this waits for it.
class MpiRequests {
 public:
  struct State;
  MpiRequests();
  ~MpiRequests();
  MpiRequests(MpiRequests&&) noexcept;
  MpiRequests& operator=(MpiRequests&&) noexcept;
  /// MPI_Test on each.
  bool done();
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
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
