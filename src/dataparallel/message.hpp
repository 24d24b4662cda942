// Messages between programs that run side by side on the ranks: a worker on most, a server on some. Unlike a
// collective, mail needs no agreement on who speaks when; it says itself what it is, and whoever gets it looks.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

#include "dataparallel/operation.hpp"

namespace gradmeter::dataparallel {

/// In front of every message. What the fields but `bytes` mean is the business of those who write to each other.
struct MessageHeader {
  std::uint16_t operation = 0;
  /// Not of any step: a probe marks so what a worker posts between steps, and who answers it hands the mark on, so that
  /// bytes can be told apart.
  std::uint16_t outside_step = 0;
  std::uint32_t shard = 0;
  std::uint64_t clock = 0;             ///< the worker's
  std::uint64_t version = 0;           ///< of the weights that were read, or are sent
  std::uint64_t sequence = 0;          ///< counts a sender's messages to one receiver, so that a doubled one is known
  std::uint64_t first = 0, count = 0;  ///< elements of the shard
  std::uint64_t bytes = 0;             ///< of payload behind the header
  double value = 0;
  std::uint64_t check = 0;  ///< of header and payload, where messages are verified (see verified_mail.hpp); 0: none
};
static_assert(std::is_trivially_copyable_v<MessageHeader> && sizeof(MessageHeader) == 72);

/// Whom a port belongs to. Workers write to servers and servers to workers.
enum class Role : std::uint8_t { worker, server };

struct PortOptions {
  std::size_t payload_bytes = std::size_t{1} << 20;  ///< of a message, at most
  int in_flight = 2;  ///< messages that one port has on their way to one receiver, at most
};

/// Of one message with its header, in memory [bytes].
constexpr std::size_t slot_bytes(const PortOptions& o) {
  return (sizeof(MessageHeader) + o.payload_bytes + 63) / 64 * 64;
}
/// What both ports of a rank take from a fabric's memory at most [bytes].
constexpr std::size_t port_memory_bytes(const PortOptions& o, int ranks) {
  constexpr std::size_t page = 4096, ports = 2;
  return ports * static_cast<std::size_t>(ranks) * static_cast<std::size_t>(o.in_flight) *
         ((slot_bytes(o) + page - 1) / page * page);
}

/// What came. The payload is valid until the port is asked for the next.
struct Message {
  int from = 0;                    ///< rank in the group
  bool is_failure_notice = false;  ///< no message: this rank has died (in virtual time; over MPI the job ends)
  MessageHeader header = {};
  std::span<const std::byte> payload = {};
};

/// Where one program of one rank sends and gets its mail. One thread.
/// Messages of one sender arrive in the order of posting, unless faults are played. A message to the own rank goes
/// through memory and is no traffic. Payload counts as bytes sent, headers do not.
class Port {
 public:
  virtual ~Port() = default;
  /// Room for a payload to that rank. Empty: as many as may be are on their way; when one of them has left, `next`
  /// returns. `bytes` may be 0: then there is room when the answer holds a span, though it is empty.
  virtual std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) = 0;
  /// Sends the last draft to that rank; header.bytes is its payload's, up to what the draft was made for.
  /// label: a literal.
  virtual Ticket post(int to, const MessageHeader&, const char* label) = 0;
  /// The earliest message. Waits until there is one, until a message of its own has left, or until `deadline` by the
  /// fabric's clock; empty in the latter two. `why`: a literal, for whoever explains a hang, and `of`: whose mail is
  /// missed, as a rank of the group; -1: nobody's in particular.
  virtual std::optional<Message> next(const char* why, double deadline = std::numeric_limits<double>::infinity(),
                                      int of = -1) = 0;
  /// The same without waiting.
  std::optional<Message> poll() { return next("", -std::numeric_limits<double>::infinity()); }
  /// May messages get lost or come twice?
  virtual bool lossy() const { return false; }
};

/// Both ports of one rank.
struct Ports {
  std::unique_ptr<Port> worker, server;
};

/// A program that runs beside the worker on its rank, with a thread of its own. Ends when the program returns.
class BackgroundTask {
 public:
  virtual ~BackgroundTask() = default;
  /// Waits for its end. Errors: what the program threw.
  virtual void join() = 0;
};

}  // namespace gradmeter::dataparallel
