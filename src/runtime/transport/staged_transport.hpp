// Messages of a device's memory over a transport that moves the host's: through the memory where transports reach it.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "runtime/queue.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {

/// What is sent and received is memory of a device that `is_staged`, mapped beside the host's. A message is copied to
/// the host on a queue of its own and leaves when that copy is done; one that has come is copied to the device on
/// another. So while one message travels the next one leaves the device and the last one arrives there. `send_done`:
/// the peer has it, and both places may be overwritten. `try_receive`: it is in the device's memory.
/// The sender must not write a place before all sends from it are done: what one of them has brought to the host is not
/// copied again for another.
/// Cost: two copies of each message; of what is on its way already only the second.
/// Errors: std::logic_error for memory that transports do not reach; the inner transport's, and the queues'.
class StagedTransport final : public Transport {
 public:
  /// Both outlive it, and so does what is sent and received. Between host memory, copies are fastest where that is
  /// pinned.
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
    std::span<const std::byte> data;  ///< of the device
    EventPtr copied;                  ///< to the host
    MessageHandle inner = {};
    bool is_posted = false;
  };
  struct Receiving {
    std::span<std::byte> landing;  ///< of the device
    MessageHandle inner = {};
    EventPtr copied;
    bool is_copying = false, is_zero_copy = false;
  };
  /// By slot of sendings, in order.
  struct Channel {
    std::vector<std::size_t> under_way;
    std::deque<std::size_t> unposted;  ///< of those
  };
  void begin_copy(Sending&);
  void post(Channel&);
  std::span<std::byte> host_memory(std::span<const std::byte> device_memory) const;

  Transport& inner_;
  Device& device_;
  std::unique_ptr<Queue> leaving_, arriving_;  ///< which wait for their work when they go
  std::vector<Channel> channels_;
  // A message's id is its slot + 1, so that a default handle is none of them.
  std::vector<Sending> sendings_;
  std::vector<Receiving> receivings_;
  std::vector<std::size_t> free_sendings_, free_receivings_;
};

}  // namespace gradmeter::runtime
