// SPDX-License-Identifier: Apache-2.0
// The module's interface: a collective, our own or a vendor's, that is bound to a group of ranks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "allreduce/reduce.hpp"
#include "compression/codec.hpp"
#include "core/element.hpp"
#include "core/error.hpp"
#include "runtime/device.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::allreduce {

/// One of the tensors in a buffer. Where rows · columns equals `count`, codecs may treat the tensor as a matrix.
struct TensorPart {
  std::size_t offset = 0, count = 0;  ///< elements, from the buffer's first
  std::size_t rows = 0, columns = 0;
};

/// The change that this rank's encodings make to the result of a call with a codec: the residuals that the encodings
/// add, minus what they leave out. Up to the rounding of fp32, the result is the sum of all ranks' contributions and
/// differences. For an average, contributions must be divided by the number of ranks first; differences already are.
struct CodingDifference {
  std::span<float> values = {};
  /// Each of `values` is a sum of terms, added up in fp32. `term_squares` is the sum of the squares of all these
  /// terms; the rounding errors of `values` are in proportion to its root.
  double term_squares = 0;
};

/// The tensors in a call's buffer, since codecs encode tensor by tensor. The memory that a layout refers to must live
/// until the call is complete.
struct TensorLayout {
  /// The buffer's offset among all elements that a step exchanges. By this offset a codec finds its state from earlier
  /// steps.
  std::size_t offset_in_step = 0;
  /// Ascending and disjoint; empty: the buffer is one tensor. With a codec, elements outside all tensors are not
  /// exchanged.
  std::span<const TensorPart> tensors = {};
  /// If not null, a call with a codec writes its difference here. Before the call, `values` holds one zero for each
  /// element of the buffer. The bits of the result do not depend on whether the difference is asked for.
  CodingDifference* difference = nullptr;
};

/// The input of an encoding besides the numbers: the key of its random draws, and its residuals.
struct EncodingInputs {
  compression::RandomDraw draw = {};  ///< seed, step and tensor; the rank is filled in where the encoding is made
  /// Residuals of error feedback, one element for each element of the call, read and updated; null: none.
  /// worker_residual belongs to encodings of this rank's contribution and partial sums, owner_residual to encodings of
  /// sums that this rank finishes.
  float *worker_residual = nullptr, *owner_residual = nullptr;
};

/// The time that a codec took on this rank, over all calls so far [s].
struct CodingTime {
  double encode_s = 0, decode_s = 0;
  std::uint64_t calls = 0;
  /// Adds the times of an inner call. Its `calls` are not added, since an outer call counts once.
  void add_times(const CodingTime& part) { encode_s += part.encode_s, decode_s += part.decode_s; }
};

/// One collective on buffers of equally many elements, which may be the same memory (in place). All ranks make equal
/// calls in the same order.
struct Call {
  runtime::ConstBuffer in = std::span<const float>{};
  runtime::Buffer out = std::span<float>{};
  Op op = Op::sum;
  /// The type in which summands are added, before the sum is rounded to the element type: fp32 or the element type.
  /// Null means the element type. See `reduce`.
  std::optional<core::Element> accumulate = std::nullopt;
  TensorLayout tensor_layout = {};
  EncodingInputs encoding = {};

  std::size_t count() const { return out.count(); }
  core::Element element() const { return out.element(); }
  core::Element accumulates_in() const { return accumulate.value_or(element()); }
  bool in_place() const {
    if (in.on_device() != out.on_device()) return false;
    return in.on_device() ? in.device().device_address() == out.device().device_address() : in.host() == out.host();
  }
};

/// Says what a rank waits for, in the watchdog's report.
struct Waiting {
  int peer = -1;                        ///< -1: no particular peer
  std::uint32_t round = 0, rounds = 0;  ///< the current round, and the number of rounds
};

/// The state that a codec keeps between the calls of one collective: error feedback, momentum, PowerSGD's factors Q,
/// the count of calls. Only the collective that hands it over knows its type.
using CodecState = std::shared_ptr<void>;

/// Waits until the queue no longer uses memory that is about to be freed. Errors of the queue's work are ignored, since
/// nobody uses its results.
inline void drain_before_free(runtime::Queue& queue) noexcept {
  try {
    queue.synchronise();
  } catch (...) {  // NOLINT(bugprone-empty-catch): an abandoned call's errors do not matter
  }
}

class Collective {
 public:
  virtual ~Collective() = default;
  virtual const std::string& name() const = 0;
  /// The name of the algorithm that serves a call of `bytes` bytes; a selection gives the one that it chooses.
  virtual const std::string& algorithm_for(std::uint64_t bytes) const { return (void)bytes, name(); }
  /// The collective that serves a call of `bytes` bytes: this one, or for a selection the one that it chooses. Ask the
  /// returned collective for `sent` and `bytes_required`: those of a selection itself are null once one of its
  /// collectives that counts no bytes has served a call.
  virtual const Collective& serving(std::uint64_t bytes) const { return (void)bytes, *this; }
  /// True if the buffers of a call must lie in the memory of the queue's device. False: they lie in host memory; for
  /// data on a device they are the host copies that transports use (`works_on_device_memory` says who updates them).
  virtual bool takes_device_memory() const { return false; }
  /// Says who moves data between the device and the host. True: the collective itself reads and writes the device's
  /// memory, perhaps by way of host memory as StagedCollective does. False: it works on the host copies of the device's
  /// buffers. Then the caller updates these copies before the call (`Queue::to_transport`), and copies the result back
  /// to the device after it (`from_transport`).
  virtual bool works_on_device_memory() const { return false; }
  /// True where a call that waits for its peers also keeps calls of other collectives on this rank from making
  /// progress: the call waits in the queue's stream, or `advance` blocks. Ranks that start such calls in different
  /// orders wait for each other for ever, whatever groups the calls belong to.
  virtual bool holds_up_other_calls() const { return false; }
  /// Registers buffers with a library, which then exchanges them without copying them first
  /// (AlgorithmInfo::registers_buffers). The buffers are in memory of runtime::allocate_registrable_beside and stay
  /// until the collective ends. All ranks register equal buffers, or none. To be called only between calls.
  /// Errors: BackendError with the library's own text, or where the collective cannot register buffers.
  virtual void register_buffers(std::span<const runtime::Buffer>) {
    throw core::BackendError("allreduce", name(), "it registers no buffers; take nccl, or --buffers arena");
  }
  /// Starts a call whose buffers are ready. Errors: BackendError when the last call is not complete, or when the
  /// buffers cannot be used.
  virtual void start(const Call&) = 0;
  /// Makes progress; true once the result is in `out` and the buffers may be used again. It does not block, unless the
  /// vendor's library does.
  virtual bool advance() = 0;
  virtual Waiting waiting() const { return {}; }
  /// sent: the payload bytes that this rank has sent so far. bytes_required: the payload bytes that it had to send so
  /// far, computed from the schedules, by which `sent` can be checked. Null where bytes are not counted, as in a
  /// vendor's library.
  virtual std::optional<runtime::Traffic> sent() const { return std::nullopt; }
  virtual std::optional<std::uint64_t> bytes_required() const { return std::nullopt; }
  /// The time that a codec took; null: there is no codec.
  virtual std::optional<CodingTime> coding() const { return std::nullopt; }
  /// Returns to the state before the first call, and hands over the codec's state; null: there is none. Call it only
  /// between calls. Memory is moved, not copied.
  virtual CodecState take_state() { return nullptr; }
  /// Puts back what `take_state` of this collective has handed over.
  virtual void restore_state(const CodecState&) {}
  void forget() { (void)take_state(); }
};

}  // namespace gradmeter::allreduce
