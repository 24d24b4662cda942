#include "runtime/hybrid_transport.hpp"

namespace gradmeter::runtime {
namespace {

/// Marks the tickets of the shared-memory side; neither side uses this bit of an id.
constexpr std::uint64_t inside_mark = std::uint64_t{1} << 63;

bool is_inside(const Ticket& t) { return (t.id & inside_mark) != 0; }

/// Hands the ticket to its side without the mark, and marks what comes back.
template <class Use>
auto unmarked(Ticket& t, Use use) {
  t.id &= ~inside_mark;
  const auto result = use(t);
  t.id |= inside_mark;
  return result;
}

}  // namespace

HybridTransport::HybridTransport(std::unique_ptr<MailboxTransport> inside, std::unique_ptr<MpiTransport> between,
                                 std::vector<int> local_rank)
    : inside_(std::move(inside)), between_(std::move(between)), local_rank_(std::move(local_rank)) {}

void HybridTransport::count() {
  const Traffic &a = inside_->traffic(), &b = between_->traffic();
  traffic_ = {a.bytes + b.bytes, a.messages + b.messages, b.bytes_between_nodes};
}

Ticket HybridTransport::send(int peer, int channel, std::span<const std::byte> data) {
  Ticket t;
  if (reads(peer)) {
    t = inside_->send(local_rank_[static_cast<std::size_t>(peer)], channel, data);
    t.id |= inside_mark;
  } else {
    t = between_->send(peer, channel, data);
  }
  count();
  return t;
}

Ticket HybridTransport::receive(int peer, int channel, std::span<std::byte> landing) {
  if (!reads(peer)) return between_->receive(peer, channel, landing);
  Ticket t = inside_->receive(local_rank_[static_cast<std::size_t>(peer)], channel, landing);
  t.id |= inside_mark;
  return t;
}

bool HybridTransport::left(Ticket& t) {
  if (!is_inside(t)) return between_->left(t);
  return unmarked(t, [this](Ticket& x) { return inside_->left(x); });
}

const std::byte* HybridTransport::arrived(Ticket& t) {
  if (!is_inside(t)) return between_->arrived(t);
  return unmarked(t, [this](Ticket& x) { return inside_->arrived(x); });
}

void HybridTransport::release(Ticket& t) {
  if (!is_inside(t)) return between_->release(t);
  t.id &= ~inside_mark;
  inside_->release(t);
}

void HybridTransport::progress() {
  inside_->progress();
  between_->progress();
}

}  // namespace gradmeter::runtime
