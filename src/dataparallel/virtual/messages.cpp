#include "dataparallel/virtual/messages.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/format.hpp"

namespace gradmeter::dataparallel {

/// Completes when the message of its turn is there, which may change until that message's first byte comes.
class Messages::Receiving final : public VirtualOperation {
 public:
  Receiving(Messages& all, Post& post, std::string label)
      : VirtualOperation(all.g_.baton, std::move(label)), all_(all), post_(post) {}
  bool done() const override {
    if (!complete()) all_.match(post_);
    return VirtualOperation::done();
  }
  void wait() override {
    for (all_.match(post_); !complete(); all_.match(post_)) {
      post_.box.reader = thread();
      sleep(all_.g_.wire.expected(post_.box));
      post_.box.reader = -1;
    }
    VirtualOperation::wait();
  }

 private:
  Messages& all_;
  Post& post_;
};

Messages::Post& Messages::post(Group g, int from, int to) {
  return posts_.try_emplace({g.id, from, to}, to).first->second;
}

Ticket Messages::send(Group g, int worker, int peer, ConstBuffer b) {
  const int to = g_.groups.worker(g, peer);
  auto ticket = std::make_shared<VirtualOperation>(g_.baton, fmt::format("send to {}", peer));
  const auto sending = g_.wire.send(worker, b.bytes());
  Parcel p{.from = worker};
  p.payload = std::make_shared<std::vector<std::byte>>(b.host(), b.host() + b.bytes());
  ticket->finish(sending.begin, sending.left, b.bytes(), b.bytes());
  if (sending.left <= g_.dies_at(worker)) g_.wire.deliver(post(g, worker, to).box, std::move(p), sending);
  return ticket;
}

Ticket Messages::receive(Group g, int worker, int peer, Buffer b) {
  Post& from = post(g, g_.groups.worker(g, peer), worker);
  auto ticket = std::make_shared<Receiving>(*this, from, fmt::format("a message from rank {}", peer));
  from.receiving.emplace_back(ticket, b);
  match(from);
  return ticket;
}

void Messages::match(Post& post) {
  g_.wire.settle(post.box);
  while (!post.box.arrivals.empty() && !post.receiving.empty()) {
    auto parcel = post.box.arrivals.extract(post.box.arrivals.begin());
    const auto& data = *parcel.mapped().payload;
    auto [ticket, buffer] = std::move(post.receiving.front());
    post.receiving.pop_front();
    if (data.size() != buffer.bytes()) throw std::logic_error("a message and its receive differ in length");
    if (!data.empty()) std::memcpy(buffer.host(), data.data(), data.size());
    ticket->finish(ticket->posted(), std::max(std::get<0>(parcel.key()), ticket->posted()), 0, 0);
  }
}

}  // namespace gradmeter::dataparallel
