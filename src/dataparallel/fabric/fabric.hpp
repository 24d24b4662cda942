// SPDX-License-Identifier: Apache-2.0
// The interfaces by which tasks (workers and servers) compute, read a clock and exchange messages, and by which
// strategies also make collectives. A strategy calls neither MPI nor a timer itself, so the same code runs over
// processes, over threads and in virtual time.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "dataparallel/fabric/intervals.hpp"
#include "runtime/buffer.hpp"
#include "runtime/device.hpp"

namespace gradmeter::dataparallel {

/// Consecutive elements of the flat buffer.
struct Range {
  std::size_t first = 0, count = 0;
  std::size_t end() const { return first + count; }
};

/// The facts about a completed call. Times [s] are by the fabric's clock: the host's, or virtual time.
struct Completion {
  double posted = 0, started = 0, finished = 0;
  std::uint64_t bytes_sent = 0, bytes_between_nodes = 0;  ///< payload that this rank has sent
  /// The bytes that this rank should have sent by the schedule; null for a vendor's call.
  std::optional<std::uint64_t> bytes_required;
  double encode_s = 0, decode_s = 0;  ///< time of the codec on the thread that makes progress on the call
};

/// A call under way.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  virtual bool done() const = 0;
  /// The call's times and bytes. Errors: std::logic_error before `done`.
  virtual const Completion& completion() const = 0;
  virtual std::string_view label() const = 0;
};
using Ticket = std::shared_ptr<PendingCall>;

// ExecutionContext gives a task its rank, a queue whose computations are timed, and a clock. A background task has such
// a context and ports; a worker has a Fabric, which is a context with communication.

/// A set of ranks. Group 0 holds all of them; others come from `Fabric::split`.
struct Group {
  int id = 0;
};
inline constexpr Group everybody{};

/// An entry of a log: one computation of a task, or, if `is_message_handling` is true, one run of `handle_messages` on
/// the task's own thread (which may contain computations and waits). `label` is the literal that was passed to `submit`
/// or `handle_messages`.
struct ComputeRecord {
  std::string_view label;
  Interval when;
  bool is_message_handling = false;
};
using ComputeLog = std::vector<ComputeRecord>;

/// The context of one task, and the queue of its computations. Only the task's own thread may use it.
class ExecutionContext : public runtime::Queue {
 public:
  virtual int rank(Group g = everybody) const = 0;
  virtual int size(Group g = everybody) const = 0;

  /// Runs work of this thread that handles messages (posting, taking, copying). Some contexts also time it.
  virtual void handle_messages(std::string_view, const runtime::Work& work) { work(); }
  /// Adds the times of every computation and exchange from now on to `log`, each at the latest when the next
  /// `synchronise` returns; the log must live until then. Null: from now on nothing is logged.
  virtual void log_to(ComputeLog* log) = 0;
  virtual double now() const = 0;
  /// Writes to `to` the time, by the clock of `now`, at which all work submitted so far is done. The caller does not
  /// wait: the time is written at the latest when `synchronise` returns, and `to` must live until then.
  virtual void stamp(double& to) { to = now(); }
};

using BackgroundProgram = std::function<void(ExecutionContext&)>;

// Ports carry messages between tasks, mostly of different ranks: most ranks have a worker, and some have a server.
// Unlike collectives, messages need no agreed order: the header says what a message is, and the receiver polls for it.

/// The header of every message. Tasks decide what its fields mean (server/protocol.hpp), except for `outside_step`,
/// `bytes`, `hash`, `answer_place` and `payload_place`.
struct MessageHeader {
  std::uint16_t operation = 0;
  /// Not 0: the message belongs to no step, and its bytes are not counted. A probe sets this in messages that a worker
  /// posts between steps, and a server copies it to the answer.
  std::uint16_t outside_step = 0;
  std::uint32_t server_number = 0;     ///< number of the server that the message comes from or goes to
  std::uint64_t clock = 0;             ///< a number of updates, not a time (server/consistency.hpp)
  std::uint64_t version = 0;           ///< version of the weights that were read, or are sent
  std::uint64_t sequence = 0;          ///< number of the request
  std::uint64_t first = 0, count = 0;  ///< the elements that the message is about
  std::uint64_t bytes = 0;             ///< bytes of payload behind the header
  double value = 0;
  std::uint64_t hash = 0;  ///< hash of header and payload, if the message is verified (see MessageVerifier); 0: none
  // The next two fields name memory by the number that `Port::place_of` gives it.
  std::uint64_t answer_place = 0;  ///< where in the sender's memory an answer may be written; 0: nowhere
  /// The place in the receiver's memory that holds the payload already; 0: the payload follows the header.
  std::uint64_t payload_place = 0;
};
static_assert(std::is_trivially_copyable_v<MessageHeader> && sizeof(MessageHeader) == 88);

/// The task that a port belongs to. Workers write to servers and servers to workers.
enum class Role : std::uint8_t { worker, server };
constexpr Role opposite(Role r) { return r == Role::worker ? Role::server : Role::worker; }

struct PortOptions {
  std::size_t payload_bytes = std::size_t{1} << 20;  ///< bytes of the longest payload
  int in_flight = 2;                                 ///< the most messages on their way from one port to one receiver
};

/// The memory of one message, header included [bytes].
constexpr std::size_t slot_bytes(const PortOptions& o) {
  return (sizeof(MessageHeader) + o.payload_bytes + 63) / 64 * 64;
}
/// However many ranks there are, a port holds at most this many drafts (payloads to send, see Port::draft), and at most
/// this many received payloads. Messages to one receiver occupy at most `in_flight` drafts, so a receiver that does not
/// read cannot occupy all drafts of a sender.
constexpr std::size_t held_payloads = 16;
/// The most bytes that the two ports of a rank together take from a fabric's memory.
constexpr std::size_t port_memory_bytes(const PortOptions& o, int ranks) {
  constexpr std::size_t page = 4096, ports = 2;
  const auto paged = [](std::size_t bytes) { return (bytes + page - 1) / page * page; };
  const std::size_t headers =
      static_cast<std::size_t>(ranks) * static_cast<std::size_t>(o.in_flight) * slot_bytes({.payload_bytes = 0});
  return ports * (paged(headers) + held_payloads * paged(slot_bytes(o)));
}

/// A received message. The payload is valid until the port is asked for the next message (but see Port::keep).
struct Message {
  int from = 0;  ///< rank in the group
  /// true: this is no message, but says that rank `from` has died (in virtual time; over MPI the job ends)
  bool is_failure_notice = false;
  MessageHeader header = {};
  std::span<const std::byte> payload = {};
};

/// Sends and receives messages for one task of one rank. Only the task's thread uses it, except where `await` allows
/// others. Every message arrives exactly once, and the messages of one sender arrive in the order of posting. Payload
/// counts as bytes sent; headers do not, nor do messages from a rank to itself.
class Port {
 public:
  virtual ~Port() = default;
  /// Returns memory (a draft) in which to write a payload of up to `bytes` bytes for that rank. Empty: there is no
  /// room, since too many messages are on their way; `next` then returns when one has left. A draft of 0 bytes only
  /// asks for room for a header.
  virtual std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) = 0;
  /// Sends the draft that was made last for that rank. header.bytes is the payload's length, at most that of the draft.
  /// label: a literal.
  virtual Ticket post(int to, const MessageHeader&, const char* label) = 0;
  /// Sends a payload from the caller's memory, without a copy if the fabric can read that memory. header.bytes is the
  /// payload's length. The payload must not change until the receiver has read it and asks its port for the next
  /// message. Null: there is no room, as for `draft`.
  virtual Ticket post_from(int to, const MessageHeader&, std::span<const std::byte> payload, const char* label);
  /// Returns the number by which other ranks of the node find this memory (`peer_memory`); 0: they cannot reach it.
  virtual std::uint64_t place_of(std::span<const std::byte>) const { return 0; }
  /// Returns the memory for which `place_of` on that rank gave the number `place`. This task may write to it. Null:
  /// this rank cannot reach it.
  virtual std::byte* peer_memory(int rank, std::uint64_t place) const { return (void)rank, (void)place, nullptr; }
  /// Sends a message whose payload this task has already written to the receiver's memory, at header.payload_place. The
  /// payload counts as bytes sent. Null: there is no room, as for `draft`.
  virtual Ticket post_written(int to, const MessageHeader&, std::span<std::byte> payload, const char* label);
  /// Waits for a message and returns the earliest. Returns nothing at `deadline` (by the fabric's clock), or, if there
  /// was no room for a draft, when a posted message has left, so that there may be room again. `why` and `from` are for
  /// the report of a hang: `why` is a literal; `from` is the rank in the group whose message is awaited, -1 for no
  /// particular rank.
  virtual std::optional<Message> next(const char* why, double deadline = std::numeric_limits<double>::infinity(),
                                      int from = -1) = 0;
  /// Returns the earliest message without waiting.
  std::optional<Message> poll() { return next("", -std::numeric_limits<double>::infinity()); }
  /// Keeps the last message that `next` returned: its payload stays valid until the returned object is destroyed. The
  /// thread that called `keep` must destroy that object. Null: the payload cannot be kept, since its memory is needed
  /// for other messages. A port keeps fewer than `in_flight` messages of one sender, so that the next one can arrive.
  virtual std::shared_ptr<const void> keep() { return nullptr; }
  /// Waits until `next` has a result, but leaves it in the port: other threads may take it by `poll`, one thread at a
  /// time. Returns false at once if the port is for one thread only.
  virtual bool await(const char* why) { return (void)why, false; }
  /// Sets a function that a worker's thread calls again and again while it waits in `next`, for example to do work of
  /// the server on its rank. The function returns whether there was any work. Some ports never call it.
  virtual void while_waiting(const std::function<bool()>&) {}
  /// Says that a worker's thread begins (true) or ends (false) a phase in which it posts and waits, and computes
  /// little. In this phase it moves messages itself, so other threads of this rank that move messages need not be
  /// woken. Each true is followed by a false.
  virtual void set_exchanging(bool yes) { (void)yes; }
  /// Ends a task's use of the port. Returns when no message of the task needs the port any more: at once or, if
  /// messages can get lost (in virtual time), when all of them have arrived.
  virtual void close() {}
};

/// Copies a payload from any memory to a draft and posts it. Null: there is no room.
inline Ticket post_by_draft(Port& p, int to, const MessageHeader& h, std::span<const std::byte> payload,
                            const char* label) {
  const auto room = p.draft(to, payload.size());
  if (!room) return nullptr;
  std::ranges::copy(payload, room->begin());
  return p.post(to, h, label);
}
inline Ticket Port::post_from(int to, const MessageHeader& h, std::span<const std::byte> payload, const char* label) {
  return post_by_draft(*this, to, h, payload, label);
}

inline Ticket Port::post_written(int, const MessageHeader&, std::span<std::byte>, const char*) {
  throw std::logic_error("a port that reaches nobody's memory was told that it had written there");
}

/// Both ports of one rank.
struct Ports {
  std::unique_ptr<Port> worker, server;
};

/// A task that runs beside the worker on its rank, with a thread of its own. It ends when its function returns.
class BackgroundTask {
 public:
  virtual ~BackgroundTask() = default;
  /// Waits for the task's end. Errors: those that the task threw.
  virtual void join() = 0;
};

using runtime::Buffer;
using runtime::ConstBuffer;

/// The coarsest alignment of a fabric's memory. An allocation takes at most this many bytes more than were asked for.
inline constexpr std::size_t memory_page_bytes = 4096;

enum class CallKind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, send, receive };
constexpr const char* label(CallKind kind) {
  constexpr std::array labels{"all-reduce", "reduce-scatter", "all-gather", "broadcast", "send", "receive"};
  return labels.at(static_cast<std::size_t>(kind));
}
/// The collective kind of a call, which must not be a send or a receive.
constexpr allreduce::CollectiveKind collective_kind(CallKind kind) {
  using enum allreduce::CollectiveKind;
  constexpr std::array kinds{all_reduce, reduce_scatter, all_gather, broadcast};
  return kinds.at(static_cast<std::size_t>(kind));
}

/// A collective, a send or a receive, before it is under way.
struct FabricCall {
  CallKind kind;
  Group group;
  ConstBuffer in = runtime::empty_buffer;  ///< empty for a receive
  Buffer out = runtime::empty_buffer;      ///< empty for a send; equal to `in` for collectives, which work in place
  allreduce::Op op = allreduce::Op::sum;
  int peer = 0;  ///< the other rank of a send or receive; the root of a broadcast
  runtime::EventPtr ready = {};
  allreduce::TensorLayout tensor_layout = {};
  bool of_last_step = false;  ///< see `Fabric::receive_of_last_step`
};

/// All ranks of a group must make the group's collective calls in the same order. A call with an event
/// (`FabricCall::ready`) begins when the event is reached; without an event, its buffers must be ready when the call is
/// made. From the beginning of a call until `wait` returns, nobody else may use its buffers. Errors: BackendError when
/// the transport or library below fails.
class Fabric : public ExecutionContext {
 public:
  /// Collective over all ranks. Ranks of one colour form a group, ordered by key.
  virtual Group split(int color, int key) = 0;

  /// Starts a call. The functions below only fill in a FabricCall and start it, so a decorator overrides this function
  /// alone.
  virtual Ticket start(const FabricCall&) = 0;
  virtual void wait(const Ticket&) = 0;
  /// Reduces in place by `op`; `average` divides the sum by the group's size. tensor_layout: for codecs, which encode
  /// tensor by tensor.
  Ticket all_reduce(Group g, Buffer b, allreduce::Op op, runtime::EventPtr ready = {},
                    const allreduce::TensorLayout& tensor_layout = {}) {
    return start({.kind = CallKind::all_reduce,
                  .group = g,
                  .in = b,
                  .out = b,
                  .op = op,
                  .ready = std::move(ready),
                  .tensor_layout = tensor_layout});
  }
  /// Works in place: afterwards this rank's block of the buffer holds the result, and the other blocks are undefined.
  /// allreduce::block_begin says where the block of each rank begins.
  Ticket reduce_scatter(Group g, Buffer b, allreduce::Op op, runtime::EventPtr ready = {}) {
    return start(
        {.kind = CallKind::reduce_scatter, .group = g, .in = b, .out = b, .op = op, .ready = std::move(ready)});
  }
  /// Works in place: block r of the buffer comes from rank r.
  Ticket all_gather(Group g, Buffer b, runtime::EventPtr ready = {}) {
    return start({.kind = CallKind::all_gather, .group = g, .in = b, .out = b, .ready = std::move(ready)});
  }
  Ticket broadcast(Group g, Buffer b, int root, runtime::EventPtr ready = {}) {
    return start({.kind = CallKind::broadcast, .group = g, .in = b, .out = b, .peer = root, .ready = std::move(ready)});
  }
  /// Messages between two ranks of a group arrive in the order of posting; they do not wait for collectives.
  Ticket send(Group g, int peer, ConstBuffer b, runtime::EventPtr ready = {}) {
    return start({.kind = CallKind::send, .group = g, .in = b, .peer = peer, .ready = std::move(ready)});
  }
  /// ready: the event after which the buffer may be overwritten.
  Ticket receive(Group g, int peer, Buffer b, runtime::EventPtr ready = {}) {
    return start({.kind = CallKind::receive, .group = g, .out = b, .peer = peer, .ready = std::move(ready)});
  }
  /// Receives a message that its sender has sent in the previous step, but that this rank receives only in the present
  /// one. Decorators that look at single steps count the message in the previous step.
  Ticket receive_of_last_step(Group g, int peer, Buffer b, runtime::EventPtr ready = {}) {
    return start({.kind = CallKind::receive,
                  .group = g,
                  .out = b,
                  .peer = peer,
                  .ready = std::move(ready),
                  .of_last_step = true});
  }

  /// Opens both ports of this rank. Collective over the group; no call may be under way.
  virtual Ports open(Group, const PortOptions&) = 0;
  /// Starts a background task. Objects that it refers to must live until `join`. It may use this fabric's ports, but
  /// not the fabric itself.
  virtual std::unique_ptr<BackgroundTask> launch(BackgroundProgram) = 0;
  /// Returns a vector, by tensor, to which the worker writes when each gradient of this step is ready; null: nobody
  /// wants these times. The vector stays valid until the step ends.
  virtual std::vector<double>* ready_times() { return nullptr; }
  /// Zeroed memory that any call accepts, valid as long as the fabric. Errors: BackendError when there is none left.
  virtual Buffer memory(std::size_t floats) = 0;
};

// The bases of decorators, which forward every call to an inner context, fabric or port.

/// Forwards the functions that contexts and fabrics have in common. Interface: ExecutionContext or Fabric.
template <class Interface>
class ForwardingContext : public Interface {
 public:
  explicit ForwardingContext(Interface& inner) : inner_(inner) {}
  int rank(Group g) const override { return inner_.rank(g); }
  int size(Group g) const override { return inner_.size(g); }
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    inner_.submit(label, cost, work);
  }
  void enter_layer(int layer) override { inner_.enter_layer(layer); }
  runtime::Device& device() override { return inner_.device(); }
  runtime::EventPtr record() override { return inner_.record(); }
  void handle_messages(std::string_view label, const runtime::Work& work) override {
    inner_.handle_messages(label, work);
  }
  void log_to(ComputeLog* log) override { inner_.log_to(log); }
  void stamp(double& to) override { inner_.stamp(to); }
  void begin_after(const runtime::EventPtr& e) override { inner_.begin_after(e); }
  void synchronise() override { inner_.synchronise(); }
  double now() const override { return inner_.now(); }

 protected:
  Interface& inner_;
};

class ForwardingFabric : public ForwardingContext<Fabric> {
 public:
  using ForwardingContext<Fabric>::ForwardingContext;
  Group split(int color, int key) override { return inner_.split(color, key); }
  Ticket start(const FabricCall& call) override { return inner_.start(call); }
  void wait(const Ticket& t) override { inner_.wait(t); }
  Ports open(Group g, const PortOptions& o) override { return inner_.open(g, o); }
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram program) override {
    return inner_.launch(std::move(program));
  }
  std::vector<double>* ready_times() override { return inner_.ready_times(); }
  Buffer memory(std::size_t floats) override { return inner_.memory(floats); }
};

class ForwardingPort : public Port {
 public:
  explicit ForwardingPort(std::unique_ptr<Port> inner) : inner_(std::move(inner)) {}
  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override { return inner_->draft(to, bytes); }
  Ticket post(int to, const MessageHeader& h, const char* label) override { return inner_->post(to, h, label); }
  Ticket post_from(int to, const MessageHeader& h, std::span<const std::byte> payload, const char* label) override {
    return inner_->post_from(to, h, payload, label);
  }
  std::uint64_t place_of(std::span<const std::byte> memory) const override { return inner_->place_of(memory); }
  std::byte* peer_memory(int rank, std::uint64_t place) const override { return inner_->peer_memory(rank, place); }
  Ticket post_written(int to, const MessageHeader& h, std::span<std::byte> payload, const char* label) override {
    return inner_->post_written(to, h, payload, label);
  }
  std::optional<Message> next(const char* why, double deadline, int from) override {
    return inner_->next(why, deadline, from);
  }
  std::shared_ptr<const void> keep() override { return inner_->keep(); }
  bool await(const char* why) override { return inner_->await(why); }
  void while_waiting(const std::function<bool()>& f) override { inner_->while_waiting(f); }
  void set_exchanging(bool yes) override { inner_->set_exchanging(yes); }
  void close() override { inner_->close(); }

 protected:
  std::unique_ptr<Port> inner_;
};

}  // namespace gradmeter::dataparallel
