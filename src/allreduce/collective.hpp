// The face of the room: an all-reduce bound to a group of ranks, own or the vendor's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "allreduce/reduce.hpp"
#include "core/element.hpp"
#include "runtime/transport.hpp"

namespace gradmeter::allreduce {

/// One all-reduce of `count` elements. in == out: in place. All ranks make equal calls in the same order.
struct Call {
  const std::byte* in;
  std::byte* out;
  std::size_t count;
  core::Element element = core::Element::f32;
  Op op = Op::sum;
  /// What several summands are added up in before they are rounded to the element: itself, or fp32 (see `reduce`).
  std::optional<core::Element> accumulate = std::nullopt;

  core::Element accumulates_in() const { return accumulate.value_or(element); }
};

/// Where a rank is stuck, for the watchdog.
struct Waiting {
  int peer = -1;  ///< -1: for nobody in particular
  std::uint32_t round = 0, rounds = 0;
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
};

}  // namespace gradmeter::allreduce
