// SPDX-License-Identifier: Apache-2.0
// MPI's own collectives, one function for each, which makes the blocking or the non-blocking call.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "core/element.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::runtime {

/// Narrows a count for MPI 3's int arguments. Errors: BackendError when it does not fit.
int mpi_count(std::size_t n);

/// Computes inout[i] = in[i] ∘ inout[i] for n elements, where ∘ is a commutative operation. It must not throw.
using Combiner = void (*)(const std::byte* in, std::byte* inout, std::size_t n);

/// An element type and an operation, in the form that MPI's reductions take.
class Reduction {
 public:
  struct Handles;
  /// MPI's own type and operator. The vendor decides how min and max treat NaN and zeros of both signs; their result
  /// may depend on the order of operands. Errors: BackendError for 16-bit and 8-bit floats, which MPI lacks.
  Reduction(core::Element, Combine);
  /// Treats any element as bytes that only `combiner` understands. A process may have at most 64 different combiners.
  Reduction(core::Element, Combiner);

  const Handles& handles() const { return *handles_; }
  std::size_t element_bytes() const { return element_bytes_; }

 private:
  std::shared_ptr<const Handles> handles_;
  std::size_t element_bytes_;
};

/// Holds the requests of at most two non-blocking calls. MPI may use the calls' buffers and `MpiCuts` until `done` is
/// true, so the owner must wait for that.
class MpiRequests {
 public:
  struct State;
  MpiRequests();
  ~MpiRequests();
  MpiRequests(MpiRequests&&) noexcept;
  MpiRequests& operator=(MpiRequests&&) noexcept;
  /// Tests the requests that are not complete yet (MPI_Test); true once all are.
  bool done();
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// A division of a buffer into blocks, one for each rank: number of elements and first element, by rank.
struct MpiCuts {
  std::vector<int> counts, begins;
};

/// The buffers of a call; in == out means in place. Counts are in elements of the reduction's type.
struct MpiBuffers {
  const std::byte* in;
  std::byte* out;
  std::size_t count;
};

// All functions are collective. If `later` is null the function blocks; else it makes MPI's non-blocking call and puts
// its request into `later`. Counts must fit an int.
// Errors: BackendError with MPI's own text.

void mpi_all_reduce(const Communicator&, MpiBuffers, const Reduction&, MpiRequests* later);
/// A blocking all-reduce for many calls that differ only in their buffers. MPI's other arguments are looked up and
/// converted once, since that took 0.02 us of the 0.3 us of a call with 8 bytes (results/allreduce.md). The
/// communicator and the reduction must outlive this object.
class MpiAllReduce {
 public:
  MpiAllReduce(const Communicator&, const Reduction&, std::size_t count);
  ~MpiAllReduce();
  MpiAllReduce(MpiAllReduce&&) noexcept;
  MpiAllReduce& operator=(MpiAllReduce&&) noexcept;
  void operator()(const std::byte* in, std::byte* out) const;

 private:
  struct Arguments;
  std::unique_ptr<const Arguments> arguments_;
};
/// Writes the reduced block of this rank to this rank's block of `out`; in an in-place call, to the beginning of the
/// buffer, as MPI does.
void mpi_reduce_scatter(const Communicator&, MpiBuffers, const MpiCuts&, const Reduction&, MpiRequests* later);
/// Each rank contributes its block of `in`.
void mpi_all_gather(const Communicator&, MpiBuffers, const MpiCuts&, const Reduction&, MpiRequests* later);
/// Reduce-scatter and all-gather with blocks of equal length: the count must be a multiple of the number of ranks.
void mpi_reduce_scatter(const Communicator&, MpiBuffers, const Reduction&, MpiRequests* later);
void mpi_all_gather(const Communicator&, MpiBuffers, const Reduction&, MpiRequests* later);
/// Works only in place, on `out`.
void mpi_broadcast(const Communicator&, MpiBuffers, int root, const Reduction&, MpiRequests* later);
/// The count must be a multiple of the number of ranks.
void mpi_all_to_all(const Communicator&, MpiBuffers, const Reduction&, MpiRequests* later);
/// Sends `in` to the next rank, and receives `out` from the previous one. It works in place only as a blocking call,
/// since MPI 3.1 has no MPI_Isendrecv_replace.
void mpi_send_receive(const Communicator&, MpiBuffers, const Reduction&, MpiRequests* later);

}  // namespace gradmeter::runtime
