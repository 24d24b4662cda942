// What a training strategy uses of the system: collectives, messages, computation and a clock. A strategy owns no MPI
// call and no timer of its own, so the same code runs over ranks, over threads and in virtual time.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "allreduce/collective.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "dataparallel/execution_context.hpp"
#include "dataparallel/message.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::dataparallel {

using runtime::Buffer;
using runtime::ConstBuffer;

/// The coarsest alignment of a fabric's memory: what an allocation may take besides its bytes.
inline constexpr std::size_t memory_page_bytes = 4096;

enum class CallKind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, send, receive };
constexpr const char* label(CallKind kind) {
  constexpr std::array labels{"all-reduce", "reduce-scatter", "all-gather", "broadcast", "send", "receive"};
  return labels.at(static_cast<std::size_t>(kind));
}
/// Not of sends and receives.
constexpr allreduce::CollectiveKind collective_kind(CallKind kind) {
  using enum allreduce::CollectiveKind;
  constexpr std::array kinds{all_reduce, reduce_scatter, all_gather, broadcast};
  return kinds.at(static_cast<std::size_t>(kind));
}

/// A collective, a send or a receive, before it is under way.
struct FabricCall {
  CallKind kind;
  Group group;
  ConstBuffer in = runtime::no_floats;  ///< empty for a receive
  Buffer out = runtime::no_floats;      ///< empty for a send; collectives work in place: it is `in`
  allreduce::Op op = allreduce::Op::sum;
  int peer = 0;  ///< the other rank of a send or receive; the root of a broadcast
  runtime::EventPtr ready = {};
  allreduce::TensorLayout tensor_layout = {};
  bool of_last_step = false;  ///< a receive of a message that its sender has sent in the step before
};

/// All ranks of a group must make its collective calls in the same order. A call begins when its event is reached;
/// without one the buffers must be ready when it is made. Buffers belong to the fabric from the call
/// until `wait` returns. Errors: BackendError when the layer below fails.
class Fabric : public ExecutionContext {
 public:
  /// Collective over all ranks. Ranks of one colour form a group, ordered by key.
  virtual Group split(int color, int key) = 0;

  /// Starts any of the calls below, which only fill in a FabricCall. So decorators override them all at once.
  virtual Ticket start(const FabricCall&) = 0;
  virtual void wait(const Ticket&) = 0;
  /// In place. average: the sum divided by the group's size. `tensor_layout`: for codecs, which encode tensors.
  Ticket all_reduce(Group g, Buffer b, allreduce::Op op, runtime::EventPtr r = {},
                    const allreduce::TensorLayout& tensor_layout = {}) {
    return start({.kind = CallKind::all_reduce,
                  .group = g,
                  .in = b,
                  .out = b,
                  .op = op,
                  .ready = std::move(r),
                  .tensor_layout = tensor_layout});
  }
  /// In place: afterwards block `rank` (allreduce::block_begin over the group's size) holds the finished value, what
  /// the others hold is undefined.
  Ticket reduce_scatter(Group g, Buffer b, allreduce::Op op, runtime::EventPtr r = {}) {
    return start({.kind = CallKind::reduce_scatter, .group = g, .in = b, .out = b, .op = op, .ready = std::move(r)});
  }
  /// In place: block r comes from rank r.
  Ticket all_gather(Group g, Buffer b, runtime::EventPtr r = {}) {
    return start({.kind = CallKind::all_gather, .group = g, .in = b, .out = b, .ready = std::move(r)});
  }
  Ticket broadcast(Group g, Buffer b, int root, runtime::EventPtr r = {}) {
    return start({.kind = CallKind::broadcast, .group = g, .in = b, .out = b, .peer = root, .ready = std::move(r)});
  }
  /// Messages between two ranks of a group arrive in the order of their posting; they do not wait for collectives.
  Ticket send(Group g, int peer, ConstBuffer b, runtime::EventPtr r = {}) {
    return start({.kind = CallKind::send, .group = g, .in = b, .peer = peer, .ready = std::move(r)});
  }
  /// r: after which the buffer may be overwritten.
  Ticket receive(Group g, int peer, Buffer b, runtime::EventPtr r = {}) {
    return start({.kind = CallKind::receive, .group = g, .out = b, .peer = peer, .ready = std::move(r)});
  }
  /// The same, of a message that its sender has sent in this rank's last step: a decorator that looks at single steps
  /// counts it there. It may be called between steps, or in the next one.
  Ticket receive_of_last_step(Group g, int peer, Buffer b, runtime::EventPtr r = {}) {
    return start(
        {.kind = CallKind::receive, .group = g, .out = b, .peer = peer, .ready = std::move(r), .of_last_step = true});
  }

  /// Collective over the group. Before any call is under way.
  virtual Ports open(Group, const PortOptions&) = 0;
  /// Starts a background task. What it refers to must live until `join`; of this fabric it may use only the ports.
  virtual std::unique_ptr<BackgroundTask> launch(BackgroundProgram) = 0;
  /// Zeroed memory that any call accepts, valid as long as the fabric. Errors: BackendError when there is none left.
  virtual Buffer memory(std::size_t floats) = 0;
};

}  // namespace gradmeter::dataparallel
