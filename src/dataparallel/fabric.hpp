// What a training strategy may use of the world: collectives, messages, computation and a clock. A strategy owns no
// MPI call and no timer of its own, so the same code runs over ranks, over threads and in virtual time.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "allreduce/collective.hpp"
#include "dataparallel/intervals.hpp"
#include "model/compute.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::dataparallel {

using runtime::Buffer;
using runtime::ConstBuffer;

/// A set of ranks. Group 0 is everybody; others come from `split`.
struct Group {
  int id = 0;
};
inline constexpr Group everybody{};

/// From when on a call's data may be read: recorded behind the computation so far, as cudaEventRecord does it.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool reached() const = 0;
};
using Ready = std::shared_ptr<const Event>;  ///< null: at once

/// What became of a call, in the fabric's own clock [s]: the host's, a stream's events, or virtual time.
struct Completion {
  double posted = 0, started = 0, finished = 0;
  std::uint64_t bytes_sent = 0, bytes_between_nodes = 0;  ///< payload, by this rank
  std::optional<std::uint64_t> bytes_due;                 ///< what the schedule's messages add up to; null: a vendor's
  double encode_s = 0, decode_s = 0;                      ///< of the mover's time, with a codec
};

/// One computation of one rank. The label is what `compute` was given: a literal.
struct ComputeRecord {
  std::string_view label;
  Interval when;
};
using ComputeLog = std::vector<ComputeRecord>;

/// A call under way.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual bool done() const = 0;
  /// Errors: std::logic_error before `done`.
  virtual const Completion& completion() const = 0;
  virtual std::string_view label() const = 0;
};
using Ticket = std::shared_ptr<Operation>;

/// Collective calls must be made by all ranks of the group in the same order. Buffers belong to the fabric from the
/// call until `wait` returns. Errors: BackendError when the layer below fails.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual int rank(Group g = everybody) const = 0;
  virtual int size(Group g = everybody) const = 0;
  /// Collective over everybody. Ranks of one colour form a group, ordered by key.
  virtual Group split(int color, int key) = 0;

  /// In place. average: the sum divided by the group's size. `contents`: for codecs, whose business tensors are.
  virtual Ticket all_reduce(Group, Buffer, allreduce::Op, Ready = {}, const allreduce::Contents& contents = {}) = 0;
  virtual Ticket broadcast(Group, Buffer, int root, Ready = {}) = 0;
  /// Messages between two ranks of a group arrive in the order of their posting; they do not wait for collectives.
  virtual Ticket send(Group, int peer, ConstBuffer, Ready = {}) = 0;
  virtual Ticket receive(Group, int peer, Buffer) = 0;
  virtual void wait(const Ticket&) = 0;

  /// Behind all computation that this rank has asked for so far.
  virtual Ready record() = 0;
  virtual void compute(std::string_view label, model::Cost, const std::function<void()>& work) = 0;
  /// From now on the interval of every computation goes to `log`, by the backend's own clock, at the latest when
  /// `settle` returns. Null: nowhere.
  virtual void log_to(ComputeLog* log) = 0;
  /// Waits until all computation asked for is done. On the host it always is.
  virtual void settle() {}
  virtual double now() const = 0;
};

}  // namespace gradmeter::dataparallel
