// SPDX-License-Identifier: Apache-2.0
// Transports around other transports: one uses shared memory inside a node and MPI between nodes, one moves a device's
// memory by way of the host's, and one injects lost and late messages.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/injection.hpp"
#include "runtime/device.hpp"
#include "runtime/transport/shared_memory_transport.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {

/// Uses shared memory inside a node and MPI between nodes. Both transports have the same channels. `local_rank[r]` is
/// peer r's rank in the shared-memory transport, or `elsewhere`. Cost: one more branch for each message.
class HybridTransport final : public Transport {
 public:
  static constexpr int elsewhere = -1;
  HybridTransport(std::unique_ptr<SharedMemoryTransport> inside, std::unique_ptr<Transport> between,
                  std::vector<int> local_rank);

  std::string_view name() const override { return "hybrid"; }
  int rank() const override { return between_->rank(); }
  int size() const override { return between_->size(); }
  int channels() const override { return between_->channels(); }
  bool zero_copy_from(int peer) const override { return local_rank_[static_cast<std::size_t>(peer)] != elsewhere; }
  bool can_send_from(std::span<const std::byte> data) const override { return inside_->can_send_from(data); }
  std::optional<std::uint64_t> memory_number_of(std::span<const std::byte> data) const override {
    return inside_->memory_number_of(data);
  }
  std::byte* peer_memory(int peer, std::uint64_t memory_number) const override {
    return zero_copy_from(peer) ? inside_->peer_memory(local_rank_[static_cast<std::size_t>(peer)], memory_number)
                                : nullptr;
  }
  std::size_t message_bytes() const override { return between_->message_bytes(); }
  MessageHandle send(int peer, int channel, std::span<const std::byte> data) override;
  MessageHandle receive(int peer, int channel, std::span<std::byte> landing) override;
  bool send_done(MessageHandle&) override;
  const std::byte* try_receive(MessageHandle&) override;
  void note_send_times() override { inside_->note_send_times(), between_->note_send_times(); }
  std::optional<double> sent_s(const MessageHandle&) const override;
  void release(MessageHandle&) override;
  void progress() override;

 private:
  void update_traffic();

  std::unique_ptr<SharedMemoryTransport> inside_;
  std::unique_ptr<Transport> between_;
  std::vector<int> local_rank_;
};

/// Sends and receives a device's memory over a transport that moves host memory. It is for a device that `is_staged`:
/// transports reach only a copy of its memory on the host. One queue copies a message to the host, and the message
/// leaves when that copy is done. Another queue copies an arrived message to the device. So while one message is
/// transferred, the sender can copy the next one to the host, and the receiver can copy the previous one to the device.
/// `send_done` is true once the inner send is done, so that the data and the copy on the host may be overwritten.
/// `try_receive` gives a message once it is in the device's memory. The sender must not write to memory before all
/// sends from it are done, since sends of the same data in one channel share one copy to the host. Cost: two copies of
/// each message; one if an unfinished send of the channel has already copied the data. Errors: std::logic_error for
/// memory that transports do not reach; those of the inner transport and of the queues.
class StagedTransport final : public Transport {
 public:
  /// Both arguments and all memory that is sent or received must outlive the transport. Pinned memory is copied
  /// fastest.
  StagedTransport(Transport& inner, Device&);
  std::string_view name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int channels() const override { return inner_.channels(); }
  bool zero_copy_from(int) const override { return false; }
  bool can_send_from(std::span<const std::byte> device_memory) const override;
  std::size_t message_bytes() const override { return inner_.message_bytes(); }
  MessageHandle send(int peer, int channel, std::span<const std::byte> data) override;
  MessageHandle receive(int peer, int channel, std::span<std::byte> landing) override;
  bool send_done(MessageHandle&) override;
  const std::byte* try_receive(MessageHandle&) override;
  void release(MessageHandle&) override;
  void progress() override;

 private:
  struct Sending {
    int peer = 0, channel = 0;
    std::span<const std::byte> data;  ///< in the device's memory
    EventPtr copied;                  ///< reached when the copy to the host is done
    MessageHandle inner = {};
    bool is_posted = false;
  };
  struct Receiving {
    std::span<std::byte> landing;  ///< in the device's memory
    MessageHandle inner = {};
    EventPtr copied;
    bool is_copying = false, is_zero_copy = false;
  };
  /// One channel's sent messages, as indices into `sendings_`, in the order of sending.
  struct Channel {
    std::vector<std::size_t> under_way;  ///< messages whose send is not done
    std::deque<std::size_t> unposted;    ///< messages that wait for their copy to the host
  };
  void begin_copy(Sending&);
  void post(Channel&);
  std::span<std::byte> host_memory(std::span<const std::byte> device_memory) const;

  Transport& inner_;
  Device& device_;
  std::unique_ptr<Queue> leaving_, arriving_;  ///< copies to the host, copies to the device; destructors wait
  std::vector<Channel> channels_;
  // A message's id is its slot + 1, since 0, the id of a default handle, stands for no message.
  std::vector<Sending> sendings_;
  std::vector<Receiving> receivings_;
  std::vector<std::size_t> free_sendings_, free_receivings_;
};

/// A transport whose messages are lost and sent again, delayed, or held back by a cut link: --inject drop, delay, cut.
/// The receiver makes the faults, in the same way around every inner transport: it holds a message back until the time
/// that the faults determine, and until all earlier messages of the peer in this channel are delivered. A delay counts
/// from the time at which the message was sent; if the transport does not tell that time, from when the receiver finds
/// the message. A send is done once the receiver has found the message, even while the receiver holds it back: a real
/// network, too, accepts a message before it delivers it. So a message that lies in the sender's memory is copied, if
/// the receive states its length. Waiting ranks must poll, because a message that is held back cannot wake them
/// (`use_doorbell` is null). Cost: an entry of a map for each message on its way, and that copy.
class UnreliableTransport final : public Transport {
 public:
  /// world_ranks: by rank of the transport, its rank in the world. connected_s: the time of the host clock at which the
  /// ranks were connected [s].
  UnreliableTransport(std::unique_ptr<Transport> inner, const core::MessageFaults& faults, std::vector<int> world_ranks,
                      double connected_s);

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int channels() const override { return inner_->channels(); }
  bool zero_copy_from(int peer) const override { return inner_->zero_copy_from(peer); }
  bool can_send_from(std::span<const std::byte> data) const override { return inner_->can_send_from(data); }
  std::optional<std::uint64_t> memory_number_of(std::span<const std::byte> data) const override {
    return inner_->memory_number_of(data);
  }
  std::byte* peer_memory(int peer, std::uint64_t memory_number) const override {
    return inner_->peer_memory(peer, memory_number);
  }
  std::size_t message_bytes() const override { return inner_->message_bytes(); }
  MessageHandle send(int peer, int channel, std::span<const std::byte> data) override;
  MessageHandle receive(int peer, int channel, std::span<std::byte> landing) override;
  bool send_done(MessageHandle&) override;
  const std::byte* try_receive(MessageHandle&) override;
  void release(MessageHandle&) override;
  void progress() override;

 private:
  /// The messages from one peer in one channel.
  struct PeerChannel {
    std::uint64_t messages = 0;  ///< number of receives posted so far
    double last_s = 0;           ///< latest delivery of these messages [s since the ranks were connected]
  };
  /// A receive whose message is not yet released.
  struct Awaited {
    MessageHandle inner;
    int peer;
    std::size_t bytes;
    core::MessageId message;
    PeerChannel* line;
    const std::byte* data = nullptr;   ///< null: the message has not arrived
    double delivery_s = 0;             ///< time of delivery [s since the ranks were connected]
    std::vector<std::byte> copy = {};  ///< copy of data that lies in the peer's memory
  };
  double now() const;
  void update_traffic() { traffic_ = inner_->traffic(); }

  std::unique_ptr<Transport> inner_;
  core::MessageFaults faults_;
  std::vector<int> world_ranks_;
  double connected_s_;
  std::map<std::pair<int, int>, PeerChannel> lines_;  ///< by peer and channel
  std::unordered_map<std::uint64_t, Awaited> awaited_;
  std::uint64_t next_id_ = 1;  ///< never 0, the id of a default handle, which names no message
};

}  // namespace gradmeter::runtime
