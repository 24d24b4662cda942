#include "dataparallel/simulation/point_to_point.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/format.hpp"

namespace gradmeter::dataparallel {

/// Completes when its message arrives; that time may change until the message's first byte is there.
class PointToPoint::Receiving final : public SimOperation {
 public:
  Receiving(PointToPoint& all, Channel& post, std::string label)
      : SimOperation(all.g_.scheduler, std::move(label)), all_(all), post_(post) {}
  bool done() const override {
    if (!complete()) all_.match(post_);
    return SimOperation::done();
  }
  void wait() override {
    for (all_.match(post_); !complete(); all_.match(post_)) {
      post_.box.reader = thread();
      sleep(all_.g_.network.expected(post_.box));
      post_.box.reader = -1;
    }
    SimOperation::wait();
  }

 private:
  PointToPoint& all_;
  Channel& post_;
};

PointToPoint::Channel& PointToPoint::post(Group g, int from, int to) {
  return posts_.try_emplace({g.id, from, to}, to).first->second;
}

Ticket PointToPoint::send(Group g, int worker, int peer, ConstBuffer b) {
  const int to = g_.groups.worker(g, peer);
  auto ticket = std::make_shared<SimOperation>(g_.scheduler, fmt::format("send to {}", peer));
  const auto sending = g_.network.send(worker, to, b.bytes());
  Packet p{.from = worker};
  const std::size_t moved = g_.simulated.time_only ? 0 : b.bytes();
  p.payload = std::make_shared<std::vector<std::byte>>(b.host(), b.host() + moved);
  ticket->finish(sending.begin, sending.left, b.bytes(), b.bytes());
  if (sending.left <= g_.fails_at(worker)) g_.network.deliver(post(g, worker, to).box, std::move(p), sending);
  return ticket;
}

Ticket PointToPoint::receive(Group g, int worker, int peer, Buffer b) {
  Channel& from = post(g, g_.groups.worker(g, peer), worker);
  auto ticket = std::make_shared<Receiving>(*this, from, fmt::format("a message from rank {}", peer));
  from.receiving.emplace_back(ticket, b);
  match(from);
  return ticket;
}

void PointToPoint::match(Channel& post) {
  g_.network.settle(post.box);
  while (!post.box.arrivals.empty() && !post.receiving.empty()) {
    auto packet = post.box.arrivals.extract(post.box.arrivals.begin());
    const auto& data = *packet.mapped().payload;
    auto [ticket, buffer] = std::move(post.receiving.front());
    post.receiving.pop_front();
    if (data.size() != buffer.bytes() && !g_.simulated.time_only)
      throw std::logic_error("a message and its receive differ in length");
    if (!data.empty()) std::memcpy(buffer.host(), data.data(), data.size());
    ticket->finish(ticket->posted(), std::max(std::get<0>(packet.key()), ticket->posted()), 0, 0);
  }
}

}  // namespace gradmeter::dataparallel
