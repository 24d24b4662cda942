#include "runtime/transport/hybrid_transport.hpp"

namespace gradmeter::runtime {
namespace {

/// Marks the tickets of the shared-memory side; neither side uses this bit of an id.
constexpr std::uint64_t inside_mark = std::uint64_t{1} << 63;

bool is_inside(const MessageHandle& t) { return (t.id & inside_mark) != 0; }

/// Hands the ticket to its side without the mark, and marks what comes back.
template <class Use>
auto unmarked(MessageHandle& t, Use use) {
  t.id &= ~inside_mark;
  const auto result = use(t);
  t.id |= inside_mark;
  return result;
}

}  // namespace

HybridTransport::HybridTransport(std::unique_ptr<SharedMemoryTransport> inside, std::unique_ptr<Transport> between,
                                 std::vector<int> local_rank)
    : inside_(std::move(inside)), between_(std::move(between)), local_rank_(std::move(local_rank)) {}

void HybridTransport::count() {
  const Traffic &a = inside_->traffic(), &b = between_->traffic();
  traffic_ = {a.bytes + b.bytes, a.messages + b.messages, b.bytes_between_nodes};
}

MessageHandle HybridTransport::send(int peer, int channel, std::span<const std::byte> data) {
  MessageHandle t;
  if (zero_copy_from(peer)) {
    t = inside_->send(local_rank_[static_cast<std::size_t>(peer)], channel, data);
    t.id |= inside_mark;
  } else {
    t = between_->send(peer, channel, data);
  }
  count();
  return t;
}

MessageHandle HybridTransport::receive(int peer, int channel, std::span<std::byte> landing) {
  if (!zero_copy_from(peer)) return between_->receive(peer, channel, landing);
  MessageHandle t = inside_->receive(local_rank_[static_cast<std::size_t>(peer)], channel, landing);
  t.id |= inside_mark;
  return t;
}

bool HybridTransport::send_done(MessageHandle& t) {
  if (!is_inside(t)) return between_->send_done(t);
  return unmarked(t, [this](MessageHandle& x) { return inside_->send_done(x); });
}

const std::byte* HybridTransport::try_receive(MessageHandle& t) {
  if (!is_inside(t)) return between_->try_receive(t);
  return unmarked(t, [this](MessageHandle& x) { return inside_->try_receive(x); });
}

void HybridTransport::release(MessageHandle& t) {
  if (!is_inside(t)) return between_->release(t);
  t.id &= ~inside_mark;
  inside_->release(t);
}

void HybridTransport::progress() {
  inside_->progress();
  between_->progress();
}

}  // namespace gradmeter::runtime
