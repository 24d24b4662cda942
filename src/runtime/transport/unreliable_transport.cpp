#include "runtime/transport/unreliable_transport.hpp"

#include <algorithm>

#include "runtime/time/clock.hpp"

namespace gradmeter::runtime {

UnreliableTransport::UnreliableTransport(std::unique_ptr<Transport> inner, const core::MessageFaults& faults,
                                         std::vector<int> world_ranks, double connected_s)
    : inner_(std::move(inner)), faults_(faults), world_ranks_(std::move(world_ranks)), connected_s_(connected_s) {}

double UnreliableTransport::now() const { return host_clock() - connected_s_; }

MessageHandle UnreliableTransport::send(int peer, int channel, std::span<const std::byte> data) {
  const MessageHandle h = inner_->send(peer, channel, data);
  count();
  return h;
}

MessageHandle UnreliableTransport::receive(int peer, int channel, std::span<std::byte> landing) {
  const auto world_rank = [this](int r) {
    return static_cast<std::uint32_t>(world_ranks_[static_cast<std::size_t>(r)]);
  };
  Line& line = lines_[{peer, channel}];
  const core::MessagePlace place{.from = world_rank(peer),
                                 .to = world_rank(rank()),
                                 .channel = static_cast<std::uint32_t>(channel),
                                 .number = line.messages++};
  awaited_.emplace(next_id_, Awaited{inner_->receive(peer, channel, landing), place, &line});
  return {.id = next_id_++, .place = nullptr};
}

bool UnreliableTransport::send_done(MessageHandle& h) {
  const bool done = inner_->send_done(h);
  count();
  return done;
}

const std::byte* UnreliableTransport::try_receive(MessageHandle& h) {
  const auto it = awaited_.find(h.id);
  if (it == awaited_.end()) return inner_->try_receive(h);
  Awaited& a = it->second;
  if (a.data == nullptr) {
    a.data = inner_->try_receive(a.inner);
    if (a.data == nullptr) return nullptr;
    a.handed_on_s = std::max(a.line->last_s, faults_.handed_on_s(a.place, now()));
    a.line->last_s = a.handed_on_s;
  }
  return now() < a.handed_on_s ? nullptr : a.data;
}

void UnreliableTransport::release(MessageHandle& h) {
  const auto it = awaited_.find(h.id);
  if (it == awaited_.end()) return inner_->release(h);
  inner_->release(it->second.inner);
  awaited_.erase(it);
}

void UnreliableTransport::progress() {
  inner_->progress();
  count();
}

}  // namespace gradmeter::runtime
