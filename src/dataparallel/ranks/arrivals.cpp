#include "dataparallel/ranks/arrivals.hpp"

#include <cstring>

namespace gradmeter::dataparallel {

Arrivals::Arrivals(runtime::Transport& transport, const PortOptions& o)
    : transport_(transport), payload_bytes_(o.payload_bytes) {
  for (const Role to : {Role::worker, Role::server}) {
    for (int from = 0; from < transport.size(); ++from) {
      if (from != transport.rank()) lines_.push_back({.from = from, .to = to});
    }
  }
  for (Line& line : lines_) listen(line);
}

void Arrivals::listen(Line& line) {
  const auto landing = std::as_writable_bytes(std::span(&line.header, 1));
  line.handle = transport_.receive(line.from, header_channel(line.to), landing);
}

/// The next header from that rank, if it has come.
void Arrivals::take_header(Line& line) {
  const std::byte* at = transport_.try_receive(line.handle);
  if (!at) return;
  line.coming.push_back({.from = line.from, .to = line.to});
  Arrival& a = line.coming.back();
  std::memcpy(&a.header, at, sizeof line.header);
  if (a.header.payload_place > 0) a.payload = transport_.peer_memory(transport_.rank(), a.header.payload_place - 1);
  transport_.release(line.handle);
  listen(line);
}

/// Tells the transport where the payload goes. False: there is no memory for it now.
bool Arrivals::land(Arrival& a) {
  if (!transport_.zero_copy_from(a.from)) {
    auto& free = free_buffers_[a.to];
    if (free.empty() && buffers_made_[a.to] < held_payloads) free.emplace_back(payload_bytes_), ++buffers_made_[a.to];
    if (free.empty()) return false;
    a.buffer = std::move(free.back());
    free.pop_back();
  }
  const std::span<std::byte> landing(a.buffer);
  a.handle = transport_.receive(a.from, payload_channel(a.to), landing.first(a.buffer.empty() ? 0 : a.header.bytes));
  return a.landing = true;
}

bool Arrivals::has_come(Arrival& a) {
  if (!a.payload && a.landing) a.payload = transport_.try_receive(a.handle);
  return a.payload || a.header.bytes == 0;
}

bool Arrivals::move(const std::function<void(Arrival&)>& deliver) {
  bool moved = false;
  for (Line& line : lines_) {
    take_header(line);
    auto& coming = line.coming;
    for (Arrival& a : coming) {
      if (a.header.bytes > 0 && !a.payload && !a.landing && !land(a)) break;
    }
    for (; !coming.empty() && has_come(coming.front()); coming.pop_front(), moved = true) deliver(coming.front());
  }
  return moved;
}

void Arrivals::release(Arrival& a) {
  if (a.landing) transport_.release(a.handle);
  if (!a.buffer.empty()) free_buffers_[a.to].push_back(std::move(a.buffer));
}

}  // namespace gradmeter::dataparallel
