// What a training strategy uses of the system: collectives, messages, computation and a clock. A strategy owns no MPI
// call and no timer of its own, so the same code runs over ranks, over threads and in virtual time.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "allreduce/collective.hpp"
#include "dataparallel/intervals.hpp"
#include "dataparallel/message.hpp"
#include "dataparallel/operation.hpp"
#include "model/compute.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::dataparallel {

using runtime::Buffer;
using runtime::ConstBuffer;

/// A set of ranks. Group 0 is all of them; others come from `split`.
struct Group {
  int id = 0;
};
inline constexpr Group everybody{};

/// One computation of one rank, or a stretch of its own thread inside an exchange, which may contain computations and
/// waits. The label is what `compute` or `exchange` was given: a literal.
struct ComputeRecord {
  std::string_view label;
  Interval when;
  bool exchanges = false;
};
using ComputeLog = std::vector<ComputeRecord>;

/// The coarsest alignment of a fabric's memory: what an allocation may take besides its bytes.
inline constexpr std::size_t memory_page_bytes = 4096;

/// All ranks of a group must make its collective calls in the same order. Buffers belong to the fabric from the call
/// until `wait` returns. Errors: BackendError when the layer below fails.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual int rank(Group g = everybody) const = 0;
  virtual int size(Group g = everybody) const = 0;
  /// Collective over all ranks. Ranks of one colour form a group, ordered by key.
  virtual Group split(int color, int key) = 0;

  /// In place. average: the sum divided by the group's size. `tensor_layout`: for codecs, which encode tensors.
  virtual Ticket all_reduce(Group, Buffer, allreduce::Op, Ready = {},
                            const allreduce::TensorLayout& tensor_layout = {}) = 0;
  /// In place: afterwards block `rank` (allreduce::block_begin over the group's size) holds the finished value, what
  /// the others hold is undefined.
  virtual Ticket reduce_scatter(Group, Buffer, allreduce::Op, Ready = {}) = 0;
  /// In place: block r comes from rank r.
  virtual Ticket all_gather(Group, Buffer, Ready = {}) = 0;
  virtual Ticket broadcast(Group, Buffer, int root, Ready = {}) = 0;
  /// Messages between two ranks of a group arrive in the order of their posting; they do not wait for collectives.
  virtual Ticket send(Group, int peer, ConstBuffer, Ready = {}) = 0;
  virtual Ticket receive(Group, int peer, Buffer) = 0;
  virtual void wait(const Ticket&) = 0;

  /// Collective over the group. Before any call is under way.
  virtual Ports open(Group, const PortOptions&) = 0;
  /// Starts a background task. Its fabric has computation, a clock and the ports that were opened here; it must make no
  /// other call. What it refers to must live until `join`.
  virtual std::unique_ptr<BackgroundTask> launch(std::function<void(Fabric&)> program) = 0;
  /// Zeroed memory that any call accepts, valid as long as the fabric. Errors: BackendError when there is none left.
  virtual std::span<float> memory(std::size_t floats) = 0;

  /// An event after all computation that this rank has asked for so far.
  virtual Ready record() = 0;
  virtual void compute(std::string_view label, model::Cost, const std::function<void()>& work) = 0;
  /// Work of this thread on messages: posting, taking, copying. A fabric that does not time it only runs it.
  virtual void exchange(std::string_view, const std::function<void()>& work) { work(); }
  /// From now on the interval of every computation and exchange goes to `log`, by the backend's own clock, at the
  /// latest when `settle` returns. Null: no log.
  virtual void log_to(ComputeLog* log) = 0;
  /// Waits until all computation asked for is done. On the host it always is.
  virtual void settle() {}
  virtual double now() const = 0;
};

}  // namespace gradmeter::dataparallel
