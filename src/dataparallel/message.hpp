// Messages between tasks of different ranks: a worker on most, a server on some. Unlike a collective, a message needs
// no agreement on order. Its header says what it is, and the receiver polls for it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "dataparallel/operation.hpp"

namespace gradmeter::dataparallel {

/// In front of every message. All fields but `bytes` are defined by the tasks that exchange it.
struct MessageHeader {
  std::uint16_t operation = 0;
  /// Belongs to no step: a probe marks messages that a worker posts between steps, and an answer copies the mark, so
  /// that their bytes can be told apart.
  std::uint16_t outside_step = 0;
  std::uint32_t shard = 0;
  std::uint64_t clock = 0;             ///< the worker's
  std::uint64_t version = 0;           ///< of the weights that were read, or are sent
  std::uint64_t sequence = 0;          ///< of the request
  std::uint64_t first = 0, count = 0;  ///< elements of the shard
  std::uint64_t bytes = 0;             ///< of payload behind the header
  double value = 0;
  std::uint64_t check = 0;  ///< of header and payload, if verified (see message_verifier.hpp); 0: none
  // Places in memory, as `Port::place_of` numbers them.
  std::uint64_t answer_place = 0;   ///< of the sender's: an answer's payload may be written there; 0: nowhere
  std::uint64_t payload_place = 0;  ///< of the receiver's, where the payload lies already; 0: it follows
};
static_assert(std::is_trivially_copyable_v<MessageHeader> && sizeof(MessageHeader) == 88);

/// Which task a port belongs to. Workers write to servers and servers to workers.
enum class Role : std::uint8_t { worker, server };
constexpr Role opposite(Role r) { return r == Role::worker ? Role::server : Role::worker; }

struct PortOptions {
  std::size_t payload_bytes = std::size_t{1} << 20;  ///< the longest message
  int in_flight = 2;                                 ///< the most messages from one port on their way to one receiver
};

/// The memory of one message with its header [bytes].
constexpr std::size_t slot_bytes(const PortOptions& o) {
  return (sizeof(MessageHeader) + o.payload_bytes + 63) / 64 * 64;
}
/// The most drafts, and the most received payloads, that a port holds, whatever the number of ranks: a receiver that
/// does not read keeps at most `in_flight` of the former.
constexpr std::size_t held_payloads = 16;
/// The most that both ports of a rank take from a fabric's memory [bytes].
constexpr std::size_t port_memory_bytes(const PortOptions& o, int ranks) {
  constexpr std::size_t page = 4096, ports = 2;
  const auto paged = [](std::size_t bytes) { return (bytes + page - 1) / page * page; };
  const std::size_t headers =
      static_cast<std::size_t>(ranks) * static_cast<std::size_t>(o.in_flight) * slot_bytes({.payload_bytes = 0});
  return ports * (paged(headers) + held_payloads * paged(slot_bytes(o)));
}

/// A received message. The payload is valid until the port is asked for the next.
struct Message {
  int from = 0;                    ///< rank in the group
  bool is_failure_notice = false;  ///< no message: this rank has died (in virtual time; over MPI the job ends)
  MessageHeader header = {};
  std::span<const std::byte> payload = {};
};

/// Where one task of one rank sends and receives messages. One thread.
/// Every message arrives once, those of one sender in the order of posting. A message to the own rank goes through
/// memory and is no traffic. Payload counts as bytes sent, headers do not.
class Port {
 public:
  virtual ~Port() = default;
  /// Memory for a payload to that rank. Empty: the most messages allowed are on their way; `next` returns when one of
  /// them has left. `bytes` may be 0: then there is room when the answer holds a span, though it is empty.
  virtual std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) = 0;
  /// Sends the last draft to that rank; header.bytes is its payload's length, at most that of the draft.
  /// label: a literal.
  virtual Ticket post(int to, const MessageHeader&, const char* label) = 0;
  /// Sends a payload from where it lies, without a copy where the fabric can read it there; header.bytes is its length.
  /// It must not change until the receiver has asked its port for the message after it. Null: no room, as `draft` says.
  virtual Ticket post_from(int to, const MessageHeader&, std::span<const std::byte> payload, const char* label);
  /// The number by which ports of this node find memory of this rank; 0: they cannot reach it.
  virtual std::uint64_t place_of(std::span<const std::byte>) const { return 0; }
  /// The memory of another rank, or of the own, at such a place, to be written by this task; null: it cannot reach it.
  virtual std::byte* peer_memory(int rank, std::uint64_t place) const { return (void)rank, (void)place, nullptr; }
  /// Sends a payload that this task has written to the receiver's memory, at header.payload_place: it counts as sent,
  /// and the receiver sees it there. Null: no room, as `draft` says.
  virtual Ticket post_written(int to, const MessageHeader&, std::span<std::byte> payload, const char* label);
  /// The earliest message. Waits until there is one, until a message of its own has left, or until `deadline` by the
  /// fabric's clock; empty in the latter two. For the report of a hang, `why` is a literal, and `of` the rank of the
  /// group whose message is awaited; -1: no particular rank.
  virtual std::optional<Message> next(const char* why, double deadline = std::numeric_limits<double>::infinity(),
                                      int of = -1) = 0;
  /// The same without waiting.
  std::optional<Message> poll() { return next("", -std::numeric_limits<double>::infinity()); }
  /// Keeps the payload of the message that `next` returned last until the answer is destroyed, by the same thread.
  /// Null: it cannot, since that memory is needed for other messages: of one sender's it keeps fewer than `in_flight`,
  /// so that the next one finds its way.
  virtual std::shared_ptr<const void> keep() { return nullptr; }
  /// Waits until `next` has something to return, and takes nothing, so that other threads may take it by `poll`, one at
  /// a time. False, at once: one thread alone may use this port.
  virtual bool await(const char* why) { return (void)why, false; }
  /// What a worker's thread does again and again while it waits in `next`: work of the server on its rank, say. It
  /// returns whether there was any. Ports that know no such thing ignore it.
  virtual void while_waiting(const std::function<bool()>&) {}
  /// A worker's thread begins or ends an exchange: between the two it posts and waits, and computes little. So threads
  /// that move messages or serve beside it need not be woken. Every beginning has its end.
  virtual void attend(bool yes) { (void)yes; }
  /// The last call of a task that ends well: returns when nothing that it posted needs this port any more. Where no
  /// message gets lost that is at once.
  virtual void close() {}
};

/// A payload that lies anywhere, copied to a draft. Null: there is no room.
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

/// A task that runs beside the worker on its rank, with a thread of its own. Ends when its function returns.
class BackgroundTask {
 public:
  virtual ~BackgroundTask() = default;
  /// Waits for its end. Errors: what the task threw.
  virtual void join() = 0;
};

}  // namespace gradmeter::dataparallel
