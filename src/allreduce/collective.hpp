// The face of the room: an all-reduce bound to a group of ranks, own or the vendor's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "allreduce/reduce.hpp"
#include "core/element.hpp"
#include "runtime/transport.hpp"

namespace gradmeter::allreduce {

/// One of the tensors that a buffer is made of. As a matrix where rows · columns is its count, for codecs that take it
/// so.
struct TensorPart {
  std::size_t offset = 0, count = 0;  ///< elements, from the buffer's first
  std::size_t rows = 0, columns = 0;
};

/// What a call with a codec adds to this rank's contribution: what feedback had kept and now sends, less what is lost
/// or kept. So the result is, within fp32, the sum over ranks of contribution (its share, of an average) and
/// difference.
struct CodingDifference {
  std::span<float> values = {};
  double squares = 0;  ///< of what was added up and taken off in fp32 on the way: its length scales the roundings
};

/// What the numbers are: codecs take tensors one by one. Must last until the call is complete.
struct TensorLayout {
  /// Where the buffer lies in all that is exchanged in a step: names what is kept from one step to the next [elements].
  std::size_t first = 0;
  /// Ascending, apart; empty: the buffer is one tensor. With a codec, what is in no tensor is not exchanged.
  std::span<const TensorPart> tensors = {};
  /// Null, or of `count` values, zeros before the call: to be filled in by a call with a codec. Its bits stay the same.
  CodingDifference* difference = nullptr;
};

/// What an encoding needs besides the numbers: what randomness is drawn from, and where losses are kept.
struct Encoding {
  std::uint64_t seed = 0, step = 0;
  std::uint32_t tensor = 0;
  /// Error feedback, an element for each of the call's, before it and after it; null: none. worker: of what this rank
  /// encodes on the way; owner: of sums that it finishes.
  float *worker_residual = nullptr, *owner_residual = nullptr;
};

/// What a codec took of a rank's time in all calls so far [s].
struct CodingTime {
  double encode_s = 0, decode_s = 0;
  std::uint64_t calls = 0;
};

/// One all-reduce of `count` elements. in == out: in place. All ranks make equal calls in the same order.
struct Call {
  const std::byte* in;
  std::byte* out;
  std::size_t count;
  core::Element element = core::Element::f32;
  Op op = Op::sum;
  /// What several summands are added up in before they are rounded to the element: itself, or fp32 (see `reduce`).
  std::optional<core::Element> accumulate = std::nullopt;
  TensorLayout tensor_layout = {};
  Encoding encoding = {};

  core::Element accumulates_in() const { return accumulate.value_or(element); }
};

/// Where a rank is stuck, for the watchdog.
struct Waiting {
  int peer = -1;  ///< -1: for nobody in particular
  std::uint32_t round = 0, rounds = 0;
};

/// What a codec keeps from call to call: error feedback, momentum, bases, the count of calls. Of one collective.
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
  /// Who serves a call of so many bytes: itself, or the one that a selection chooses.
  virtual const std::string& serves(std::uint64_t bytes) const { return (void)bytes, name(); }
  /// Errors: BackendError when the last call is not complete, or when the buffers cannot be used.
  virtual void start(const Call&) = 0;
  /// Moves what can be moved; true once the result is in `out` and the buffers are free. Does not block, unless the
  /// vendor's does.
  virtual bool advance() = 0;
  virtual Waiting waiting() const { return {}; }
  /// Payload bytes that this rank has sent so far, and those that its schedule's messages add up to. Null: not ours
  /// to count (a vendor's).
  virtual std::optional<runtime::Traffic> sent() const { return std::nullopt; }
  virtual std::optional<std::uint64_t> bytes_due() const { return std::nullopt; }
  /// Null: nothing is encoded.
  virtual std::optional<CodingTime> coding() const { return std::nullopt; }
  /// Begins anew, as if nothing had been called, and hands over what a codec has kept so far; null: nothing is kept.
  /// Between calls only. Moves memory, copies none.
  virtual std::unique_ptr<CodecState> take_state() { return nullptr; }
  /// Puts back what `take_state` of this collective has handed over.
  virtual void restore_state(std::unique_ptr<CodecState>) {}
  void forget() { (void)take_state(); }
};

}  // namespace gradmeter::allreduce
