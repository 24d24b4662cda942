// SPDX-License-Identifier: Apache-2.0
// The adapter of NCCL: collectives between GPUs, in streams. It also compiles without NCCL.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/element.hpp"
#include "core/units.hpp"
#include "runtime/communicator.hpp"
#include "runtime/device.hpp"

struct CUstream_st;
struct ncclComm;

namespace gradmeter::runtime {

/// The reason why NCCL cannot be used here, and what to do about it; empty: it can.
std::string nccl_refusal();
/// "NCCL 2.28.9", the version of the library that runs; empty: there is none.
std::string nccl_library();

/// The version of the NCCL that runs, as ncclGetVersion gives it: 22803 is 2.28.3. Null: unknown, or built without
/// NCCL.
std::optional<int> running_nccl_version();
/// The reason why NCCL cannot reduce elements of this type on the calling thread's GPU; empty: it can. 8-bit floats
/// need NCCL 2.24 and sm_90.
std::string nccl_sum_refusal(core::Element);

struct NcclOptions {
  /// Values of NCCL_ALGO and NCCL_PROTO ("ring", "ll"); empty: NCCL's own choice, or the environment's.
  std::string algorithm = {}, protocol = {};
  /// The longest time that a call may take, and that the ranks may take to make the communicator. Since a call waits
  /// for all ranks, this time includes the work of the slowest rank since the last call.
  core::Seconds timeout{600};
};

/// NCCL's calls on one communicator in one stream, to be made within `NcclCommunicator::issue` or `add_group`. Counts
/// are elements; all memory is on the rank's GPU. Errors: BackendError with NCCL's own text.
class NcclCalls {
 public:
  NcclCalls(ncclComm* comm, CUstream_st* stream) : comm_(comm), stream_(stream) {}
  /// in == out: in place.
  void all_reduce(const std::byte* in, std::byte* out, std::size_t n, core::Element, Combine) const;
  /// Only the root's `out` is used.
  void reduce(const std::byte* in, std::byte* out, std::size_t n, core::Element, Combine, int root) const;
  /// n: elements of each rank's result. Block r of `in`, reduced over all ranks, becomes rank r's `out`. In place: out
  /// == in + rank·n.
  void reduce_scatter(const std::byte* in, std::byte* out, std::size_t n, core::Element, Combine) const;
  /// n: elements that each rank contributes. In place: in == out + rank·n.
  void all_gather(const std::byte* in, std::byte* out, std::size_t n, core::Element) const;
  /// Only the root's `in` is used.
  void broadcast(const std::byte* in, std::byte* out, std::size_t n, core::Element, int root) const;
  void send(const std::byte* from, std::size_t n, core::Element, int peer) const;
  void receive(std::byte* to, std::size_t n, core::Element, int peer) const;

 private:
  ncclComm* comm_;
  CUstream_st* stream_;
};

/// A communicator of NCCL. Each rank has a thread and a GPU of its own, since NCCL refuses two ranks on one GPU. NCCL
/// runs in its blocking mode: when `issue` returns, the call is in its stream. `issue` may wait for peers to which NCCL
/// has to connect, but not longer than the timeout. Only the thread that made the communicator may call it, one call
/// at a time.
/// After an error, and when a call lasts longer than the timeout, the communicator is aborted and cannot be used
/// again. Peers that wait notice this when their own timeout is over, or because the run ends.
class NcclCommunicator {
 public:
  /// Collective. The rank's GPU is the calling thread's current one. Errors: UsageError with nccl_refusal; Unavailable
  /// where ranks share a GPU; BackendError with NCCL's own text, and when peers do not arrive.
  NcclCommunicator(const Communicator&, NcclOptions);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  int rank() const;
  int size() const;

  /// Issues the calls that `body` makes, as one group. `what`: a literal that names the group in errors. Errors: those
  /// of `check`.
  void issue(const char* what, CUstream_st* stream, const std::function<void(const NcclCalls&)>& body);
  /// Begins a call; the timeout counts from here. Its groups are then issued by `add_group`. Call it also before a
  /// launch of a CUDA graph that holds captured calls; no groups follow then.
  void begin(const char* what);
  void add_group(CUstream_st* stream, const std::function<void(const NcclCalls&)>& body);
  /// Must be called while waiting for the stream. Errors: BackendError that names the call, and either NCCL's
  /// asynchronous error or, when the timeout is over, the ranks of this node that have not made the call; PeerFailed.
  void check();
  /// Must be called once the stream has completed the calls. Errors: NCCL's asynchronous error.
  void note_completion();
  /// Ends the calls under way on this rank, so that the rank's stream can continue. No more calls can be issued.
  void abort() noexcept;
  /// Registers memory of allocate_registrable_beside for all later calls that use it. Either all ranks register memory
  /// of the same size, or none. Errors: BackendError.
  void register_memory(std::byte* at, std::size_t bytes);
  /// Sets a function that destroys all graphs that hold calls of this communicator, since NCCL's abort waits until no
  /// such graph is left. The function is called on the rank's thread.
  void on_abort(std::function<void()>);
  /// The lowest rank of this node that has made fewer calls than this one; -1: none is known.
  int late_peer() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Memory of a GPU that NCCL can use faster if it is registered. Registering other memory would be of no use.

/// The reason why NCCL registers no memory in this program, and what to do about it; empty: it does (from version 2.19
/// on).
std::string nccl_registration_refusal();

/// Does what Device::allocate_beside does on a GPU, but allocates by ncclMemAlloc. NCCL accepts registration of
/// cudaMalloc's memory, but does not use it.
/// Errors: UsageError with nccl_registration_refusal; BackendError with NCCL's own text, or for another device.
OwnedBuffer allocate_registrable_beside(Device&, core::Element, std::span<std::byte> memory);

}  // namespace gradmeter::runtime
