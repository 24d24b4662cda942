// The adapter of NCCL: collectives between GPUs in streams, where the program was built with it. Compiles without.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "core/element.hpp"
#include "core/units.hpp"
#include "runtime/communicator.hpp"

struct CUstream_st;

namespace gradmeter::runtime {

/// Why there is no NCCL here, with what to do; empty: there is.
std::string nccl_refusal();
/// "NCCL 2.28.9", of the library that runs; empty: there is none.
std::string nccl_library();
/// Why NCCL does not add this type on the calling thread's GPU; empty: it does. 8-bit floats need NCCL 2.24 and sm_90.
std::string nccl_sum_refusal(core::Element);

struct NcclOptions {
  /// As NCCL_ALGO and NCCL_PROTO have them ("ring", "ll"); empty: NCCL's own choice, or the environment's.
  std::string algorithm = {}, protocol = {};
  /// So long no call may last, nor the meeting of the ranks: the slowest rank's work between two calls is part of it.
  core::Seconds patience{600};
};

/// NCCL's calls, within `NcclCommunicator::issue`. Counts are elements; all memory is the rank's GPU's. Errors:
/// BackendError with NCCL's own text.
class NcclCalls {
 public:
  /// in == out: in place.
  virtual void all_reduce(const std::byte* in, std::byte* out, std::size_t n, core::Element, Combine) const = 0;
  /// `out` counts on the root alone.
  virtual void reduce(const std::byte* in, std::byte* out, std::size_t n, core::Element, Combine, int root) const = 0;
  /// n elements a rank: block r of `in` summed to rank r's `out`. In place: out == in + rank·n.
  virtual void reduce_scatter(const std::byte* in, std::byte* out, std::size_t n, core::Element, Combine) const = 0;
  /// n elements a rank. In place: in == out + rank·n.
  virtual void all_gather(const std::byte* in, std::byte* out, std::size_t n, core::Element) const = 0;
  /// `in` counts on the root alone.
  virtual void broadcast(const std::byte* in, std::byte* out, std::size_t n, core::Element, int root) const = 0;
  virtual void send(const std::byte* from, std::size_t n, core::Element, int peer) const = 0;
  virtual void receive(std::byte* to, std::size_t n, core::Element, int peer) const = 0;

 protected:
  ~NcclCalls() = default;
};

/// A communicator of NCCL's, one rank a thread, one GPU a rank: NCCL refuses two ranks on one GPU. It does not block:
/// a call is in its stream when `launched` says so. One call at a time, by the thread that made it.
///
/// After an error, and when a call lasts longer than the patience, the communicator is aborted and of no more use:
/// peers that wait find out by their own patience, or because the run ends.
class NcclCommunicator {
 public:
  /// Collective. The rank's GPU is the calling thread's current one. Errors: UsageError with nccl_refusal; BackendError
  /// with NCCL's own text, and when peers do not come.
  NcclCommunicator(const Communicator&, NcclOptions);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  int rank() const;
  int size() const;

  /// The calls that `body` makes, as one group. `what` names it in errors: a literal.
  void issue(const char* what, CUstream_st* stream, const std::function<void(const NcclCalls&)>& body);
  /// The same for a call of several groups, or of none: the patience is for all of them. The next group may be added
  /// when `launched` says that the last one is in its stream. Whoever launches a graph of captured calls begins one
  /// too.
  void begin(const char* what);
  void add_group(CUstream_st* stream, const std::function<void(const NcclCalls&)>& body);
  /// Are the calls in their stream, so that an event after them can be recorded? Does not block. Errors: as `check`.
  bool launched();
  /// While waiting for the stream. Errors: BackendError that names the call and NCCL's asynchronous error, or after the
  /// patience the ranks of this node that have not made the call; PeerFailed.
  void check();
  /// The stream is past the calls. Errors: NCCL's asynchronous error.
  void completed();
  /// Ends what is under way on this rank, so that its stream goes on. Nothing more can be issued.
  void abort() noexcept;
  /// Memory of map_registrable, for all calls on it from now on; equal on all ranks, or on none. Errors: BackendError.
  void register_memory(std::byte* at, std::size_t bytes);
  /// Is called before an abort, for whatever reason: NCCL's waits until no graph holds calls of the communicator.
  void before_abort(std::function<void()>);
  /// The first rank of this node that has made fewer calls; -1: none, as far as can be seen.
  int late_peer() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradmeter::runtime
