// A transport whose messages are lost and sent again, delayed, or held back by a cut link: --inject drop, delay, cut.
#pragma once
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/message_faults.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {

/// The receiver holds messages back, since there all transports are alike: it sees that a message is there, and hands
/// it on when the faults say so, never before an earlier one of the same channel. Senders notice nothing, except where
/// the receiver reads their memory. No doorbell: whoever waits polls, for messages that nobody announces. Cost: an
/// entry of a map for each message on its way.
class UnreliableTransport final : public Transport {
 public:
  /// world_ranks: of each rank of the transport; connected_s: the host clock when its ranks were connected.
  UnreliableTransport(std::unique_ptr<Transport> inner, const core::MessageFaults& faults, std::vector<int> world_ranks,
                      double connected_s);

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int channels() const override { return inner_->channels(); }
  bool zero_copy_from(int peer) const override { return inner_->zero_copy_from(peer); }
  bool can_send_from(std::span<const std::byte> data) const override { return inner_->can_send_from(data); }
  std::optional<std::uint64_t> place_of(std::span<const std::byte> data) const override {
    return inner_->place_of(data);
  }
  std::byte* peer_memory(int peer, std::uint64_t place) const override { return inner_->peer_memory(peer, place); }
  std::size_t message_bytes() const override { return inner_->message_bytes(); }
  MessageHandle send(int peer, int channel, std::span<const std::byte> data) override;
  MessageHandle receive(int peer, int channel, std::span<std::byte> landing) override;
  bool send_done(MessageHandle&) override;
  const std::byte* try_receive(MessageHandle&) override;
  void release(MessageHandle&) override;
  void progress() override;

 private:
  struct Line {
    std::uint64_t messages = 0;  ///< asked for so far
    double last_s = 0;           ///< when the latest of them is handed on
  };
  struct Awaited {
    MessageHandle inner;
    core::MessagePlace place;
    Line* line;
    const std::byte* data = nullptr;  ///< null: it is not there
    double handed_on_s = 0;
  };
  double now() const;
  void count() { traffic_ = inner_->traffic(); }

  std::unique_ptr<Transport> inner_;
  core::MessageFaults faults_;
  std::vector<int> world_ranks_;
  double connected_s_;
  std::map<std::pair<int, int>, Line> lines_;  ///< by peer and channel
  std::unordered_map<std::uint64_t, Awaited> awaited_;
  std::uint64_t next_id_ = 1;  ///< 0 is the message of no bytes
};

}  // namespace gradmeter::runtime
