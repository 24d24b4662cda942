#include "runtime/transport/staged_transport.hpp"

#include <boost/icl/interval_set.hpp>
#include <cstdint>

namespace gradmeter::runtime {
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
  const std::size_t slot = slot_of(sendings_, free_sendings_);
  sendings_[slot] = {.peer = peer, .channel = channel, .data = data, .copied = nullptr};
  Channel& c = channels_[static_cast<std::size_t>(channel)];
  begin_copy(sendings_[slot]);
  c.under_way.push_back(slot);
  c.unposted.push_back(slot);
  post(c);
  return {slot + 1, nullptr};
}

/// Of what no message has brought to the host that is still read there. All of them are before the event.
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

/// In the order of the sends, since a channel's messages must not overtake each other.
void StagedTransport::post(Channel& c) {
  for (; !c.unposted.empty(); c.unposted.pop_front()) {
    Sending& s = sendings_[c.unposted.front()];
    if (s.copied && !s.copied->reached()) return;
    s.inner = inner_.send(s.peer, s.channel, host_memory(s.data));
    s.is_posted = true;
  }
}

bool StagedTransport::send_done(MessageHandle& m) {
  if (m.id == 0) return true;
  const std::size_t slot = m.id - 1;
  Sending& s = sendings_[slot];
  if (!s.is_posted || !inner_.send_done(s.inner)) return false;
  s.copied = nullptr;
  std::erase(channels_[static_cast<std::size_t>(s.channel)].under_way, slot);
  free_sendings_.push_back(slot);
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
