// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/decorators.hpp"

#include <boost/icl/interval_set.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/clock.hpp"

namespace gradmeter::runtime {
namespace {

/// Marks the handles of the shared-memory side; neither side uses this bit of an id.
constexpr std::uint64_t inside_mark = std::uint64_t{1} << 63;

bool is_inside(const MessageHandle& handle) { return (handle.id & inside_mark) != 0; }

/// Calls `use` with the handle without its mark, then marks the handle again.
template <class Use>
auto unmarked(MessageHandle& handle, Use use) {
  handle.id &= ~inside_mark;
  const auto result = use(handle);
  handle.id |= inside_mark;
  return result;
}

}  // namespace

HybridTransport::HybridTransport(std::unique_ptr<SharedMemoryTransport> inside, std::unique_ptr<Transport> between,
                                 std::vector<int> local_rank)
    : inside_(std::move(inside)), between_(std::move(between)), local_rank_(std::move(local_rank)) {}

void HybridTransport::update_traffic() {
  const Traffic &a = inside_->traffic(), &b = between_->traffic();
  traffic_ = {a.bytes + b.bytes, a.messages + b.messages, b.bytes_between_nodes};
}

MessageHandle HybridTransport::send(int peer, int channel, std::span<const std::byte> data) {
  MessageHandle handle;
  if (zero_copy_from(peer)) {
    handle = inside_->send(local_rank_[static_cast<std::size_t>(peer)], channel, data);
    handle.id |= inside_mark;
  } else {
    handle = between_->send(peer, channel, data);
  }
  update_traffic();
  return handle;
}

MessageHandle HybridTransport::receive(int peer, int channel, std::span<std::byte> landing) {
  if (!zero_copy_from(peer)) return between_->receive(peer, channel, landing);
  MessageHandle handle = inside_->receive(local_rank_[static_cast<std::size_t>(peer)], channel, landing);
  handle.id |= inside_mark;
  return handle;
}

bool HybridTransport::send_done(MessageHandle& handle) {
  if (!is_inside(handle)) return between_->send_done(handle);
  return unmarked(handle, [this](MessageHandle& inner_handle) { return inside_->send_done(inner_handle); });
}

const std::byte* HybridTransport::try_receive(MessageHandle& handle) {
  if (!is_inside(handle)) return between_->try_receive(handle);
  return unmarked(handle, [this](MessageHandle& inner_handle) { return inside_->try_receive(inner_handle); });
}

std::optional<double> HybridTransport::sent_s(const MessageHandle& handle) const {
  return is_inside(handle) ? inside_->sent_s(handle) : between_->sent_s(handle);
}

void HybridTransport::release(MessageHandle& handle) {
  if (!is_inside(handle)) return between_->release(handle);
  handle.id &= ~inside_mark;
  inside_->release(handle);
}

void HybridTransport::progress() {
  inside_->progress();
  between_->progress();
}

namespace {

ConstBuffer device_bytes(std::span<const std::byte> memory) {
  return {core::Element::i8, DeviceSpan<const std::byte>(memory.data(), memory.size())};
}
Buffer device_bytes(std::span<std::byte> memory) {
  return {core::Element::i8, DeviceSpan<std::byte>(memory.data(), memory.size())};
}

using Addresses = boost::icl::interval_set<std::uintptr_t>;
Addresses::interval_type addresses(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  return Addresses::interval_type::right_open(begin, begin + memory.size());
}

/// Takes a free slot, or appends one.
template <class T>
std::size_t take_slot(std::vector<T>& slots, std::vector<std::size_t>& free) {
  if (free.empty()) {
    slots.emplace_back();
    return slots.size() - 1;
  }
  const std::size_t slot = free.back();
  free.pop_back();
  slots[slot] = {};
  return slot;
}

}  // namespace

StagedTransport::StagedTransport(Transport& inner, Device& device)
    : inner_(inner),
      device_(device),
      leaving_(device.make_queue()),
      arriving_(device.make_queue()),
      channels_(static_cast<std::size_t>(inner.channels())) {}

std::span<std::byte> StagedTransport::host_memory(std::span<const std::byte> memory) const {
  return {const_cast<std::byte*>(device_.transport_address(device_bytes(memory))), memory.size()};
}

bool StagedTransport::can_send_from(std::span<const std::byte> memory) const {
  return memory.empty() || inner_.can_send_from(host_memory(memory));
}

MessageHandle StagedTransport::send(int peer, int channel, std::span<const std::byte> data) {
  const std::size_t slot = take_slot(sendings_, free_sendings_);
  sendings_[slot] = {.peer = peer, .channel = channel, .data = data, .copied = nullptr};
  Channel& c = channels_[static_cast<std::size_t>(channel)];
  begin_copy(sendings_[slot]);
  c.under_way.push_back(slot);
  c.unposted.push_back(slot);
  post(c);
  return {slot + 1, nullptr};
}

/// Begins to copy those parts of the message to the host that no unfinished earlier send of the channel has copied. The
/// event comes after those earlier copies too.
void StagedTransport::begin_copy(Sending& s) {
  Addresses missing(addresses(s.data));
  for (const std::size_t slot : channels_[static_cast<std::size_t>(s.channel)].under_way)
    missing -= addresses(sendings_[slot].data);
  for (const auto& part : missing) {
    const std::size_t first = part.lower() - addresses(s.data).lower();
    leaving_->to_transport(device_bytes(s.data.subspan(first, part.upper() - part.lower())));
  }
  s.copied = leaving_->record();
}

/// Posts in the order of the sends, since a channel's messages must not overtake each other.
void StagedTransport::post(Channel& c) {
  for (; !c.unposted.empty(); c.unposted.pop_front()) {
    Sending& s = sendings_[c.unposted.front()];
    if (s.copied && !s.copied->reached()) return;
    s.inner = inner_.send(s.peer, s.channel, host_memory(s.data));
    s.is_posted = true;
  }
}

bool StagedTransport::send_done(MessageHandle& handle) {
  if (handle.id == 0) return true;
  const std::size_t slot = handle.id - 1;
  Sending& s = sendings_[slot];
  if (!s.is_posted || !inner_.send_done(s.inner)) return false;
  s.copied = nullptr;
  std::erase(channels_[static_cast<std::size_t>(s.channel)].under_way, slot);
  free_sendings_.push_back(slot);
  handle.id = 0;
  return true;
}

MessageHandle StagedTransport::receive(int peer, int channel, std::span<std::byte> landing) {
  const std::size_t slot = take_slot(receivings_, free_receivings_);
  Receiving& r = receivings_[slot];
  r.landing = landing;
  r.is_zero_copy = inner_.zero_copy_from(peer);
  const auto to =
      r.is_zero_copy ? std::span<std::byte>(static_cast<std::byte*>(nullptr), landing.size()) : host_memory(landing);
  r.inner = inner_.receive(peer, channel, to);
  return {slot + 1, nullptr};
}

const std::byte* StagedTransport::try_receive(MessageHandle& handle) {
  Receiving& r = receivings_[handle.id - 1];
  if (!r.is_copying) {
    const std::byte* const from = inner_.try_receive(r.inner);
    if (!from) return nullptr;
    arriving_->copy("from transport", ConstBuffer(core::Element::i8, std::span(from, r.landing.size())),
                    device_bytes(r.landing));
    r.copied = arriving_->record();
    r.is_copying = true;
  }
  if (r.copied && !r.copied->reached()) return nullptr;
  r.copied = nullptr;
  inner_.release(r.inner);
  return r.landing.data();
}

void StagedTransport::release(MessageHandle& handle) {
  if (handle.id == 0) return;
  free_receivings_.push_back(handle.id - 1);
  handle.id = 0;
}

void StagedTransport::progress() {
  inner_.progress();
  for (Channel& c : channels_) {
    if (!c.unposted.empty()) post(c);
  }
}

UnreliableTransport::UnreliableTransport(std::unique_ptr<Transport> inner, const core::MessageFaults& faults,
                                         std::vector<int> world_ranks, double connected_s)
    : inner_(std::move(inner)), faults_(faults), world_ranks_(std::move(world_ranks)), connected_s_(connected_s) {
  inner_->note_send_times();
}

double UnreliableTransport::now() const { return host_clock() - connected_s_; }

MessageHandle UnreliableTransport::send(int peer, int channel, std::span<const std::byte> data) {
  const MessageHandle handle = inner_->send(peer, channel, data);
  update_traffic();
  return handle;
}

MessageHandle UnreliableTransport::receive(int peer, int channel, std::span<std::byte> landing) {
  const auto world_rank = [this](int r) {
    return static_cast<std::uint32_t>(world_ranks_[static_cast<std::size_t>(r)]);
  };
  PeerChannel& line = lines_[{peer, channel}];
  const core::MessageId message{.from = world_rank(peer),
                                .to = world_rank(rank()),
                                .channel = static_cast<std::uint32_t>(channel),
                                .number = line.messages++};
  awaited_.emplace(next_id_, Awaited{inner_->receive(peer, channel, landing), peer, landing.size(), message, &line});
  return {.id = next_id_++, .address = nullptr};
}

bool UnreliableTransport::send_done(MessageHandle& handle) {
  const bool done = inner_->send_done(handle);
  update_traffic();
  return done;
}

const std::byte* UnreliableTransport::try_receive(MessageHandle& handle) {
  const auto entry = awaited_.find(handle.id);
  if (entry == awaited_.end()) return inner_->try_receive(handle);
  Awaited& a = entry->second;
  if (a.data == nullptr) {
    a.data = inner_->try_receive(a.inner);
    if (a.data == nullptr) return nullptr;
    const auto sent_s = inner_->sent_s(a.inner);
    a.delivery_s = std::max(a.line->last_s, faults_.delivery_s(a.message, sent_s ? *sent_s - connected_s_ : now()));
    a.line->last_s = a.delivery_s;
    // The length is 0 in receives of servers, which read messages where they lie; such a message is not copied.
    if (a.bytes > 0 && inner_->zero_copy_from(a.peer)) {
      a.copy.assign(a.data, a.data + a.bytes);
      a.data = a.copy.data();
      inner_->release(a.inner);
    }
  }
  return now() < a.delivery_s ? nullptr : a.data;
}

void UnreliableTransport::release(MessageHandle& handle) {
  const auto entry = awaited_.find(handle.id);
  if (entry == awaited_.end()) return inner_->release(handle);
  if (entry->second.copy.empty()) inner_->release(entry->second.inner);
  awaited_.erase(entry);
}

void UnreliableTransport::progress() {
  inner_->progress();
  // The delay of a message without a send time begins when it arrives. So arrivals are looked for here, even of
  // messages that the receiver has not yet asked for: a sum of many messages asks for one after another.
  std::vector<std::uint64_t> coming;
  for (const auto& [id, awaited] : awaited_)
    if (awaited.data == nullptr) coming.push_back(id);
  std::ranges::sort(coming);  // messages of one channel keep their order
  for (const std::uint64_t id : coming) {
    MessageHandle handle{.id = id, .address = nullptr};
    (void)try_receive(handle);
  }
  update_traffic();
}

}  // namespace gradmeter::runtime
