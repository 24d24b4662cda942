#include "runtime/transport/staged_transport.hpp"

#include <algorithm>

namespace gradmeter::runtime {
namespace {

ConstBuffer device_bytes(std::span<const std::byte> memory) {
  return {core::Element::i8, DeviceSpan<const std::byte>(memory.data(), memory.size())};
}
Buffer device_bytes(std::span<std::byte> memory) {
  return {core::Element::i8, DeviceSpan<std::byte>(memory.data(), memory.size())};
}

bool contains(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.data() <= b.data() && b.data() + b.size() <= a.data() + a.size();
}
bool overlaps(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

template <class T>
std::size_t slot_of(std::vector<T>& all, std::vector<std::size_t>& free) {
  if (free.empty()) {
    all.emplace_back();
    return all.size() - 1;
  }
  const std::size_t slot = free.back();
  free.pop_back();
  all[slot] = {};
  return slot;
}

void end(Queue& queue) {
  try {
    queue.synchronise();
  } catch (...) {  // NOLINT(bugprone-empty-catch): whoever polls has had the queue's error
  }
}

}  // namespace

StagedTransport::StagedTransport(Transport& inner, Device& device)
    : inner_(inner),
      device_(device),
      leaving_(device.make_queue()),
      arriving_(device.make_queue()),
      channels_(static_cast<std::size_t>(inner.channels())) {}

StagedTransport::~StagedTransport() {
  end(*leaving_);
  end(*arriving_);
}

std::span<std::byte> StagedTransport::host_memory(std::span<const std::byte> memory) const {
  return {const_cast<std::byte*>(device_.transport_address(device_bytes(memory))), memory.size()};
}

bool StagedTransport::can_send_from(std::span<const std::byte> memory) const {
  return memory.empty() || inner_.can_send_from(host_memory(memory));
}

MessageHandle StagedTransport::send(int peer, int channel, std::span<const std::byte> data) {
  const std::size_t slot = slot_of(sendings_, free_sendings_);
  sendings_[slot] = {.peer = peer, .channel = channel, .data = data, .copy = nullptr};
  Channel& c = channels_[static_cast<std::size_t>(channel)];
  c.unposted.push_back(slot);
  post(c);
  return {slot + 1, nullptr};
}

/// False: another copy's messages are still read where it would be written.
bool StagedTransport::begin_copy(Sending& s) {
  auto& copies = channels_[static_cast<std::size_t>(s.channel)].copies;
  // Nothing has written the place since, or that copy's messages would be done.
  const auto whole = std::ranges::find_if(copies, [&](const auto& c) { return contains(c->data, s.data); });
  if (whole != copies.end()) {
    s.copy = *whole;
  } else {
    if (std::ranges::any_of(copies, [&](const auto& c) { return overlaps(c->data, s.data); })) return false;
    leaving_->to_transport(device_bytes(s.data));
    s.copy = copies.emplace_back(std::make_shared<Copy>(Copy{.data = s.data, .done = leaving_->record()}));
  }
  ++s.copy->messages;
  return true;
}

/// In the order of the sends, since a channel's messages must not overtake each other.
void StagedTransport::post(Channel& c) {
  for (const std::size_t slot : c.unposted) {
    if (Sending& s = sendings_[slot]; !s.copy && !begin_copy(s)) break;
  }
  for (; !c.unposted.empty(); c.unposted.pop_front()) {
    Sending& s = sendings_[c.unposted.front()];
    if (!s.copy || (s.copy->done && !s.copy->done->reached())) return;
    s.inner = inner_.send(s.peer, s.channel, host_memory(s.data));
    s.is_posted = true;
  }
}

bool StagedTransport::send_done(MessageHandle& m) {
  if (m.id == 0) return true;
  Sending& s = sendings_[m.id - 1];
  if (!s.is_posted || !inner_.send_done(s.inner)) return false;
  if (--s.copy->messages == 0) std::erase(channels_[static_cast<std::size_t>(s.channel)].copies, s.copy);
  s.copy = nullptr;
  free_sendings_.push_back(m.id - 1);
  m.id = 0;
  return true;
}

MessageHandle StagedTransport::receive(int peer, int channel, std::span<std::byte> landing) {
  const std::size_t slot = slot_of(receivings_, free_receivings_);
  Receiving& r = receivings_[slot];
  r.landing = landing;
  r.is_zero_copy = inner_.zero_copy_from(peer);
  const auto to =
      r.is_zero_copy ? std::span<std::byte>(static_cast<std::byte*>(nullptr), landing.size()) : host_memory(landing);
  r.inner = inner_.receive(peer, channel, to);
  return {slot + 1, nullptr};
}

const std::byte* StagedTransport::try_receive(MessageHandle& m) {
  Receiving& r = receivings_[m.id - 1];
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

void StagedTransport::release(MessageHandle& m) {
  if (m.id == 0) return;
  free_receivings_.push_back(m.id - 1);
  m.id = 0;
}

void StagedTransport::progress() {
  inner_.progress();
  for (Channel& c : channels_) {
    if (!c.unposted.empty()) post(c);
  }
}

}  // namespace gradmeter::runtime
