#include "dataparallel/ranks/departures.hpp"

#include <cstring>

#include "core/format.hpp"

namespace gradmeter::dataparallel {

Departures::Departures(runtime::Transport& transport, runtime::Arena& arena, const PortOptions& o)
    : transport_(transport), payload_bytes_(o.payload_bytes) {
  const auto ranks = static_cast<std::size_t>(transport.size()), in_flight = static_cast<std::size_t>(o.in_flight);
  const std::size_t header_bytes = slot_bytes({.payload_bytes = 0});
  for (const Role role : {Role::worker, Role::server}) {
    lanes_[role].resize(ranks);
    const std::span<std::byte> headers = arena.take(ranks * in_flight * header_bytes);
    for (std::size_t i = 0; i < ranks * in_flight; ++i) {
      lanes_[role][i / in_flight].headers.push_back(headers.subspan(i * header_bytes, sizeof(MessageHeader)));
    }
    for (std::size_t i = 0; i < std::min(held_payloads, ranks * in_flight); ++i) {
      drafts_[role].push_back(arena.take(slot_bytes(o)));
    }
  }
}

void Departures::check_length(std::size_t bytes) const {
  if (bytes <= payload_bytes_) return;
  throw std::logic_error(fmt::format("a message of {} bytes was drafted where {} is the most", bytes, payload_bytes_));
}

std::optional<std::span<std::byte>> Departures::draft(Role from, int to, std::size_t bytes) {
  check_length(bytes);
  auto& [headers, draft] = lane(from, to);
  auto& free = drafts_[from];
  if (headers.empty() || (bytes > 0 && draft.empty() && free.empty())) return std::nullopt;
  if (bytes > 0 && draft.empty()) draft = free.back(), free.pop_back();
  return draft.first(bytes);
}

Departure Departures::prepare(Role from, int to, const MessageHeader& h, std::span<const std::byte> payload,
                              const char* label) {
  check_length(h.bytes);
  auto& [headers, draft] = lane(from, to);
  Departure d{.from = from, .to = to, .payload = payload};
  if (headers.empty()) return d;
  if (h.bytes > 0 && payload.empty() && h.payload_place == 0) {
    d.draft = std::exchange(draft, {});
    if (d.draft.empty()) throw std::logic_error("a message was posted without a draft");
    d.payload = d.draft.first(h.bytes);
  }
  d.header = headers.back();
  headers.pop_back();
  std::memcpy(d.header.data(), &h, sizeof h);
  d.ticket = std::make_shared<OutgoingMessage>(label, runtime::host_clock(), to == transport_.rank() ? 0 : h.bytes);
  return d;
}

void Departures::post(Departure d) {
  ++unsent_;
  posted_.push_back(std::move(d));
}

void Departures::finish(const Departure& d) {
  lane(d.from, d.to).headers.push_back(d.header);
  if (!d.draft.empty()) drafts_[d.from].push_back(d.draft);
  d.ticket->finish();
}

void Departures::take_posted() {
  std::ranges::move(posted_, std::back_inserter(travelling_));
  posted_.clear();
}

void Departures::start(Departure& d) {
  d.ticket->stamps.started = runtime::host_clock();
  const runtime::Traffic before = transport_.traffic();
  const Role to = opposite(d.from);
  d.header_sent = transport_.send(d.to, header_channel(to), d.header);
  if (!d.payload.empty()) d.payload_sent = transport_.send(d.to, payload_channel(to), d.payload);
  if ((transport_.traffic() - before).bytes_between_nodes > 0) d.ticket->stamps.bytes_between_nodes = d.payload.size();
  d.started = true;
  if (transport_.zero_copy_from(d.to)) --unsent_;  // the receiver reads it by itself
}

bool Departures::move(const std::function<void(const Departure&)>& left) {
  bool moved = false;
  for (auto d = travelling_.begin(); d != travelling_.end();) {
    if (!d->started) start(*d), moved = true;
    const bool has_left = transport_.send_done(d->header_sent) && transport_.send_done(d->payload_sent);
    if (has_left && !transport_.zero_copy_from(d->to)) --unsent_;
    if (has_left) left(*d), moved = true;
    d = has_left ? travelling_.erase(d) : d + 1;
  }
  return moved;
}

}  // namespace gradmeter::dataparallel
