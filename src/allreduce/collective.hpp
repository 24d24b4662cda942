// The module's interface: an all-reduce bound to a group of ranks, our own or a vendor's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "allreduce/reduce.hpp"
#include "core/element.hpp"
#include "core/error.hpp"
#include "runtime/queue.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::allreduce {

/// One of the tensors in a buffer. Where rows · columns equals its count, codecs may treat it as a matrix.
struct TensorPart {
  std::size_t offset = 0, count = 0;  ///< elements, from the buffer's first
  std::size_t rows = 0, columns = 0;
};

/// What a call with a codec changes in this rank's contribution: it adds the residual that error feedback sends now,
/// and subtracts what is lost or kept. Within fp32, the result is the sum over ranks of contribution (its share, of an
/// average) and difference.
struct CodingDifference {
  std::span<float> values = {};
  double squares = 0;  ///< of the terms added and subtracted in fp32: scales the rounding errors
};

/// Which tensors the buffer holds, since codecs encode tensor by tensor. Must last until the call is complete.
struct TensorLayout {
  /// The buffer's offset in all that a step exchanges: the key of what is kept from step to step [elements].
  std::size_t first = 0;
  /// Ascending and disjoint; empty: the buffer is one tensor. With a codec, elements outside all tensors are not
  /// exchanged.
  std::span<const TensorPart> tensors = {};
  /// Null, or `count` zeros that a call with a codec fills in. The bits of the result stay the same.
  CodingDifference* difference = nullptr;
};

/// What an encoding needs besides the numbers: the key of its random draws, and its residuals.
struct Encoding {
  std::uint64_t seed = 0, step = 0;
  std::uint32_t tensor = 0;
  /// Residuals of error feedback, one element for each of the call's, read and updated; null: none. worker: of what
  /// this rank encodes on the way; owner: of the sums that it finishes.
  float *worker_residual = nullptr, *owner_residual = nullptr;
};

/// The time that a codec took on this rank, over all calls so far [s].
struct CodingTime {
  double encode_s = 0, decode_s = 0;
  std::uint64_t calls = 0;
};

/// One collective on buffers of equally many elements. The same memory: in place. All ranks make equal calls in the
/// same order.
struct Call {
  runtime::ConstBuffer in = std::span<const float>{};
  runtime::Buffer out = std::span<float>{};
  Op op = Op::sum;
  /// The type in which summands are added before they are rounded to the element: the element, or fp32 (see `reduce`).
  std::optional<core::Element> accumulate = std::nullopt;
  TensorLayout tensor_layout = {};
  Encoding encoding = {};

  std::size_t count() const { return out.count(); }
  core::Element element() const { return out.element(); }
  core::Element accumulates_in() const { return accumulate.value_or(element()); }
  bool in_place() const {
    if (in.on_device() != out.on_device()) return false;
    return in.on_device() ? in.device().device_address() == out.device().device_address() : in.host() == out.host();
  }
};

/// What a rank waits for, for the watchdog's report.
struct Waiting {
  int peer = -1;  ///< -1: no particular peer
  std::uint32_t round = 0, rounds = 0;
};

/// What a codec keeps between the calls of one collective: error feedback, momentum, bases, the count of calls.
class CodecState {
 public:
  CodecState() = default;
  CodecState(const CodecState&) = delete;
  CodecState& operator=(const CodecState&) = delete;
  virtual ~CodecState() = default;
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual const std::string& name() const = 0;
  /// The algorithm that serves a call of so many bytes: itself, or the one that a selection chooses.
  virtual const std::string& serves(std::uint64_t bytes) const { return (void)bytes, name(); }
  /// Are buffers those of its queue's device? Otherwise they are host memory, or lie where transports reach a device's.
  virtual bool takes_device_memory() const { return false; }
  /// Does it read and write them there, and not where transports reach them?
  virtual bool reads_device() const { return false; }
  /// Tells a library of buffers, which it then moves from where they lie (AlgorithmInfo::registers_buffers): memory of
  /// runtime::map_registrable, until the collective goes; equal ones on all ranks, or none. Between calls only.
  /// Errors: BackendError with the library's own text, and where the collective registers nothing.
  virtual void register_buffers(std::span<const runtime::Buffer>) {
    throw core::BackendError("allreduce", name(), "it registers no buffers; take nccl, or --buffers arena");
  }
  /// The buffers are ready. Errors: BackendError when the last call is not complete, or when they cannot be used.
  virtual void start(const Call&) = 0;
  /// Makes progress; true once the result is in `out` and the buffers are free. Does not block, unless the vendor's
  /// library does.
  virtual bool advance() = 0;
  virtual Waiting waiting() const { return {}; }
  /// Payload bytes that this rank has sent so far, and the sum of its schedule's messages. Null: not counted (a
  /// vendor's library).
  virtual std::optional<runtime::Traffic> sent() const { return std::nullopt; }
  virtual std::optional<std::uint64_t> bytes_due() const { return std::nullopt; }
  /// Null: there is no codec.
  virtual std::optional<CodingTime> coding() const { return std::nullopt; }
  /// Returns to the state before the first call, and hands over what a codec has kept; null: nothing is kept. Between
  /// calls only. Moves memory, copies none.
  virtual std::unique_ptr<CodecState> take_state() { return nullptr; }
  /// Puts back what `take_state` of this collective has handed over.
  virtual void restore_state(std::unique_ptr<CodecState>) {}
  void forget() { (void)take_state(); }
};

}  // namespace gradmeter::allreduce
