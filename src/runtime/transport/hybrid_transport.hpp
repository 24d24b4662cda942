// Shared memory inside a node, MPI between nodes: each message goes by the faster way that reaches its peer.
#pragma once
#include <memory>
#include <vector>

#include "runtime/transport/shared_memory_transport.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {

/// Both transports have the same channels; `local_rank[r]` is peer r's rank in the shared one, or `elsewhere`.
/// Cost: one branch a message above that of the transport taken.
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
  std::optional<std::uint64_t> place_of(std::span<const std::byte> data) const override {
    return inside_->place_of(data);
  }
  std::byte* peer_memory(int peer, std::uint64_t place) const override {
    return zero_copy_from(peer) ? inside_->peer_memory(local_rank_[static_cast<std::size_t>(peer)], place) : nullptr;
  }
  std::size_t message_bytes() const override { return between_->message_bytes(); }
  MessageHandle send(int peer, int channel, std::span<const std::byte> data) override;
  MessageHandle receive(int peer, int channel, std::span<std::byte> landing) override;
  bool send_done(MessageHandle&) override;
  const std::byte* try_receive(MessageHandle&) override;
  void release(MessageHandle&) override;
  void progress() override;

 private:
  void count();

  std::unique_ptr<SharedMemoryTransport> inside_;
  std::unique_ptr<Transport> between_;
  std::vector<int> local_rank_;
};

}  // namespace gradmeter::runtime
