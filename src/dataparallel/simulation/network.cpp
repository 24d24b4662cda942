#include "dataparallel/simulation/network.hpp"

#include <algorithm>

namespace gradmeter::dataparallel {
namespace {

/// Added to a packet's number: the packet is last among those of its time and sender.
constexpr std::uint64_t last_of_all = std::uint64_t{1} << 63;

}  // namespace

SimNetwork::Sending SimNetwork::send(int from, int to, std::size_t bytes) {
  const auto p = links_.send(static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), bytes,
                             scheduler_.now(scheduler_.running_thread()));
  return {p.begin, p.begin + p.seconds, p.latency_s};
}

void SimNetwork::deliver(MessageQueue& box, Packet p, Sending s, double delay) {
  p.head = s.begin + s.latency_s + delay;
  p.tail = s.left + s.latency_s + delay;
  p.port_time_s = s.left - s.begin;
  p.number = posted_++;
  enqueue(box, std::move(p));
}

void SimNetwork::deliver_at(MessageQueue& box, Packet p, double time) {
  p.head = p.tail = time;
  p.number = last_of_all + posted_++;
  enqueue(box, std::move(p));
}

void SimNetwork::enqueue(MessageQueue& box, Packet p) {
  const auto key = std::tuple(p.head, p.from, p.number);
  port(box).coming.emplace(key, Coming{std::move(p), &box});
  if (box.reader >= 0) scheduler_.wake(box.reader, expected(box));
}

void SimNetwork::put(MessageQueue& box, Packet p) {
  p.number = posted_++;
  const double now = scheduler_.now(scheduler_.running_thread());
  const auto key = std::tuple(now, p.from, p.number);
  box.arrivals.emplace(key, std::move(p));
  if (box.reader >= 0) scheduler_.wake(box.reader, now);
}

double SimNetwork::end_of(const Packet& p, double port_free) {
  return std::max(p.tail, std::max(p.head, port_free) + p.port_time_s);
}

void SimNetwork::settle(MessageQueue& box) {
  const double now = scheduler_.now(scheduler_.running_thread());
  Port& in = port(box);
  while (!in.coming.empty() && in.coming.begin()->second.packet.head <= now) {
    auto node = in.coming.extract(in.coming.begin());
    auto& [packet, to] = node.mapped();
    in.free = end_of(packet, in.free);
    const auto key = std::tuple(in.free, packet.from, packet.number);
    to->arrivals.emplace(key, std::move(packet));
  }
}

double SimNetwork::expected(const MessageQueue& box) const {
  if (!box.arrivals.empty()) return std::get<0>(box.arrivals.begin()->first);
  const Port& in = incoming_[static_cast<std::size_t>(box.owner)];
  double free = in.free;
  for (const auto& [key, coming] : in.coming) {
    free = end_of(coming.packet, free);
    if (coming.box == &box) return free;
  }
  return EventScheduler::forever;
}

}  // namespace gradmeter::dataparallel
