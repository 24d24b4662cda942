// SPDX-License-Identifier: Apache-2.0
// The interface that moves a schedule's messages: bytes between two ranks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gradmeter::runtime {

/// The longest message, by default, when buffers are cut into messages [bytes].
inline constexpr std::size_t longest_usual_message = std::size_t{1} << 20;

class Doorbell;

/// Names a message on its way. Only the transport that returned the handle understands it. A default handle names no
/// message; its send is done.
struct MessageHandle {
  std::uint64_t id = 0;
  void* address = nullptr;
};

/// The messages that this rank has sent, and their bytes of payload without headers.
struct Traffic {
  std::uint64_t bytes = 0, messages = 0, bytes_between_nodes = 0;
  Traffic operator-(const Traffic& o) const {
    return {bytes - o.bytes, messages - o.messages, bytes_between_nodes - o.bytes_between_nodes};
  }
  Traffic& operator+=(const Traffic& o) {
    bytes += o.bytes, messages += o.messages, bytes_between_nodes += o.bytes_between_nodes;
    return *this;
  }
  bool operator==(const Traffic&) const = default;
};

/// Moves messages between ranks. Messages between two ranks in one channel arrive in the order of posting; channels are
/// independent. One thread at a time may use a transport. Nothing blocks: a waiting caller calls `progress`, asks for
/// its messages, and gives the core away when nothing moved. Errors: BackendError when the layer below fails.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int channels() const = 0;
  /// True if messages between this rank and the peer are read in the sender's own memory. A receive then needs no
  /// landing, and a send is `send_done` once the peer has released the message.
  virtual bool zero_copy_from(int peer) const = 0;
  /// True if messages can be sent from this memory. (Peers can only read memory that they map.)
  virtual bool can_send_from(std::span<const std::byte>) const { return true; }
  /// A number for this memory. On another rank that maps the memory, `peer_memory` turns the number into an address.
  /// Empty: no other rank maps the memory.
  virtual std::optional<std::uint64_t> memory_number_of(std::span<const std::byte>) const { return std::nullopt; }
  /// The address at which this rank reads and writes the peer's memory with this number; null: this rank does not map
  /// that memory.
  virtual std::byte* peer_memory(int peer, std::uint64_t memory_number) const {
    return (void)peer, (void)memory_number, nullptr;
  }
  /// The message size at which this transport is efficient [bytes]. Longer buffers are cut into pieces of about this
  /// size.
  virtual std::size_t message_bytes() const = 0;

  virtual MessageHandle send(int peer, int channel, std::span<const std::byte> data) = 0;
  /// `landing` gets the bytes, and has the exact size of the message. If the message is read in the peer's memory
  /// (`zero_copy_from`), nothing is written to `landing`, and it may be empty.
  virtual MessageHandle receive(int peer, int channel, std::span<std::byte> landing) = 0;
  /// True if the source of this send may be overwritten.
  virtual bool send_done(MessageHandle&) = 0;
  /// The address of the message, in the landing buffer or the peer's memory. The address is valid until `release`;
  /// null: the message has not arrived yet.
  virtual const std::byte* try_receive(MessageHandle&) = 0;
  /// From now on this rank's messages carry the time of their sending, if the transport supports that.
  virtual void note_send_times() {}
  /// The time at which the peer sent this message, by the host's clock, which both ranks share; the message must have
  /// arrived. Empty: the message carries no time.
  virtual std::optional<double> sent_s(const MessageHandle&) const { return std::nullopt; }
  /// Ends the use of a received message: `try_receive`'s address is no longer valid, and the sender may overwrite the
  /// data.
  virtual void release(MessageHandle&) {}
  /// This rank's doorbell. From now on, peers of this transport ring it when they have sent a message to this rank, or
  /// have read a message of this rank. All ranks must call this. Null: the caller must poll.
  virtual Doorbell* use_doorbell() { return nullptr; }
  /// Must be called in each pass over waiting messages, before any `try_receive` or `send_done`.
  virtual void progress() {}

  const Traffic& traffic() const { return traffic_; }

 protected:
  Traffic traffic_;
};

}  // namespace gradmeter::runtime
