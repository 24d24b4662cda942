#include "dataparallel/virtual/wire.hpp"

#include <algorithm>

namespace gradmeter::dataparallel {
namespace {

/// Added to a parcel's number: it is last among those of its time and sender.
constexpr std::uint64_t last_of_all = std::uint64_t{1} << 63;

}  // namespace

Wire::Sending Wire::send(int from, std::size_t bytes) {
  double& free = outgoing_free_[static_cast<std::size_t>(from)];
  const double begin = std::max(baton_.now(baton_.holder()), free);
  free = begin + static_cast<double>(bytes) / link_.bytes_per_s;
  return {begin, free};
}

void Wire::deliver(Letterbox& box, Parcel p, Sending s, double delay) {
  p.head = s.begin + link_.latency_s + delay;
  p.tail = s.left + link_.latency_s + delay;
  p.wire_s = s.left - s.begin;
  p.number = posted_++;
  enqueue(box, std::move(p));
}

void Wire::deliver_at(Letterbox& box, Parcel p, double time) {
  p.head = p.tail = time;
  p.number = last_of_all + posted_++;
  enqueue(box, std::move(p));
}

void Wire::enqueue(Letterbox& box, Parcel p) {
  const auto key = std::tuple(p.head, p.from, p.number);
  port(box).coming.emplace(key, Coming{std::move(p), &box});
  if (box.reader >= 0) baton_.wake(box.reader, expected(box));
}

void Wire::put(Letterbox& box, Parcel p) {
  p.number = posted_++;
  const double now = baton_.now(baton_.holder());
  const auto key = std::tuple(now, p.from, p.number);
  box.arrivals.emplace(key, std::move(p));
  if (box.reader >= 0) baton_.wake(box.reader, now);
}

double Wire::end_of(const Parcel& p, double port_free) {
  return std::max(p.tail, std::max(p.head, port_free) + p.wire_s);
}

void Wire::settle(Letterbox& box) {
  const double now = baton_.now(baton_.holder());
  Port& in = port(box);
  while (!in.coming.empty() && in.coming.begin()->second.parcel.head <= now) {
    auto node = in.coming.extract(in.coming.begin());
    auto& [parcel, to] = node.mapped();
    in.free = end_of(parcel, in.free);
    const auto key = std::tuple(in.free, parcel.from, parcel.number);
    to->arrivals.emplace(key, std::move(parcel));
  }
}

double Wire::expected(const Letterbox& box) const {
  if (!box.arrivals.empty()) return std::get<0>(box.arrivals.begin()->first);
  const Port& in = incoming_[static_cast<std::size_t>(box.owner)];
  double free = in.free;
  for (const auto& [key, coming] : in.coming) {
    free = end_of(coming.parcel, free);
    if (coming.box == &box) return free;
  }
  return Baton::forever;
}

}  // namespace gradmeter::dataparallel
