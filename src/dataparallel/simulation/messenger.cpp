#include "dataparallel/simulation/messenger.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/format.hpp"
#include "dataparallel/simulation/operation.hpp"
#include "dataparallel/simulation/reliable_port.hpp"

namespace gradmeter::dataparallel {

/// Delivery faults happen here. The destructor undoes nothing, because after a failure it may run at any time.
class SimMessenger::SimPort final : public Port {
 public:
  SimPort(SimMessenger& messenger, std::shared_ptr<PortSet> e, Role role, int rank)
      : messenger_(messenger),
        g_(messenger.g_),
        port_set_(std::move(e)),
        role_(role),
        worker_(port_set_->members[static_cast<std::size_t>(rank)]),
        box_(port_set_->boxes(role)[static_cast<std::size_t>(rank)]),
        peers_(port_set_->members.size()) {}

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    Peer& p = peer(to);
    if (bytes > port_set_->options.payload_bytes) {
      throw std::logic_error(fmt::format("a message of {} bytes through a port that was opened for {} at most", bytes,
                                         port_set_->options.payload_bytes));
    }
    while (!p.leaving.empty() && p.leaving.front() <= g_.now()) p.leaving.pop_front();
    if (static_cast<int>(p.leaving.size()) >= port_set_->options.in_flight) {
      p.is_refused = true;
      return std::nullopt;
    }
    p.is_refused = false;
    p.draft = std::make_shared<std::vector<std::byte>>(bytes);
    return std::span<std::byte>(*p.draft);
  }

  Ticket post(int to, const MessageHeader& header, const char* label) override {
    Peer& p = peer(to);
    if (!p.draft || header.bytes > p.draft->size()) {
      throw std::logic_error(
          fmt::format("a message of {} bytes to rank {} without a draft of that length", header.bytes, to));
    }
    p.draft->resize(header.bytes);
    Packet packet{.from = worker_};
    packet.header = header;
    packet.payload = std::exchange(p.draft, nullptr);
    auto ticket = std::make_shared<SimOperation>(g_.scheduler, label);
    MessageQueue& box = port_set_->boxes(opposite(role_))[static_cast<std::size_t>(to)];
    if (box.owner == worker_) {
      ticket->finish(g_.now(), g_.now(), 0, 0);
      g_.network.put(box, std::move(packet));
      return ticket;
    }
    const auto sending = g_.network.send(worker_, box.owner, sizeof(MessageHeader) + header.bytes);
    ticket->finish(sending.begin, sending.left, header.bytes, header.bytes);
    p.leaving.push_back(sending.left);
    double& last = messenger_.last_send_end_[g_.scheduler.running_thread()];
    last = std::max(last, sending.left);
    travel(box, p.posted++, packet, sending);
    return ticket;
  }

  std::optional<Message> next(const char* why, double deadline, int) override {
    for (;;) {
      g_.network.settle(box_);
      const double now = g_.now();
      if (!box_.arrivals.empty() && std::get<0>(box_.arrivals.begin()->first) <= now) return take();
      const double leaves = first_to_leave();
      if (leaves <= now) {
        for (Peer& p : peers_) p.is_refused = p.is_refused && p.leaving.front() > now;
        return std::nullopt;
      }
      if (deadline <= now) return std::nullopt;
      box_.reader = g_.scheduler.running_thread();
      g_.scheduler.block(box_.reader, why, std::min({g_.network.expected(box_), leaves, deadline}));
      box_.reader = -1;
    }
  }

 private:
  /// This port's state for one receiver.
  struct Peer {
    std::shared_ptr<std::vector<std::byte>> draft = {};
    std::deque<double> leaving = {};  ///< when its messages are out [s], in order
    std::uint64_t posted = 0;
    bool is_refused = false;  ///< a draft was refused, and `next` has not reported room since
  };
  Peer& peer(int to) {
    if (to < 0 || to >= static_cast<int>(peers_.size())) {
      throw std::logic_error(fmt::format("there is no rank {} to write to", to));
    }
    return peers_[static_cast<std::size_t>(to)];
  }

  void travel(MessageQueue& box, std::uint64_t number, const Packet& packet, SimNetwork::Sending sending) {
    if (sending.left > g_.fails_at(worker_)) return;
    const MessageRoute route{.from = worker_, .to = box.owner, .to_role = opposite(role_), .number = number};
    const DeliveryFault fault = g_.simulated.delivery_fault ? g_.simulated.delivery_fault(route) : DeliveryFault{};
    for (int i = 0; i < fault.copies; ++i)
      g_.network.deliver(box, packet, sending, fault.delay_s.at(static_cast<std::size_t>(i)));
  }

  /// When there will be room for a draft that was refused [s].
  double first_to_leave() const {
    double first = EventScheduler::forever;
    for (const Peer& p : peers_) {
      if (p.is_refused) first = std::min(first, p.leaving.front());
    }
    return first;
  }

  Message take() {
    auto node = box_.arrivals.extract(box_.arrivals.begin());
    last_ = std::move(node.mapped());
    const auto& m = port_set_->members;
    const auto from = std::find(m.begin(), m.end(), last_.from) - m.begin();
    Message message{
        .from = static_cast<int>(from), .is_failure_notice = last_.is_failure_notice, .header = last_.header};
    if (last_.payload) message.payload = *last_.payload;
    return message;
  }

  SimMessenger& messenger_;
  SimContext& g_;
  std::shared_ptr<PortSet> port_set_;
  Role role_;
  int worker_;
  MessageQueue& box_;
  std::vector<Peer> peers_;
  Packet last_;  ///< its payload may still be read
};

std::shared_ptr<PortSet> SimMessenger::make(Group group, const PortOptions& options) {
  auto e = std::make_shared<PortSet>();
  e->options = options;
  e->members = g_.groups.members(group);
  for (const int worker : e->members) {
    e->workers.emplace_back(worker);
    e->servers.emplace_back(worker);
  }
  for (const int dead : e->members) {
    if (g_.fails_at(dead) == EventScheduler::forever) continue;
    const double ends = std::max(g_.now(), g_.fails_at(dead));
    for (const Role role : {Role::worker, Role::server}) {
      for (MessageQueue& box : e->boxes(role)) {
        if (box.owner == dead) continue;
        Packet p{.from = dead};
        p.is_failure_notice = true;
        const core::Link& link =
            g_.machine().link(static_cast<std::uint32_t>(dead), static_cast<std::uint32_t>(box.owner));
        g_.network.deliver_at(box, std::move(p), ends + link.latency_s);
      }
    }
  }
  return e;
}

Ports SimMessenger::open(Group group, int worker, PortOptions options) {
  const int rank = g_.groups.position(group, worker);
  if (options.in_flight < 1) throw std::logic_error("ports that may have no message on its way cannot send; use 1");
  if (g_.simulated.delivery_fault) options.payload_bytes += sizeof(ReliablePort::Stamp);
  auto& port_set = port_sets_[{group.id, calls_[{group.id, worker}]++}];
  if (!port_set) port_set = make(group, options);
  if (port_set->options.payload_bytes != options.payload_bytes || port_set->options.in_flight != options.in_flight) {
    throw std::logic_error(fmt::format("rank {} opens its ports with other options than its peers", worker));
  }
  const auto port = [&](Role role) -> std::unique_ptr<Port> {
    auto bare = std::make_unique<SimPort>(*this, port_set, role, rank);
    if (!g_.simulated.delivery_fault) return bare;
    return std::make_unique<ReliablePort>(std::move(bare), g_, port_set, role, rank);
  };
  return {port(Role::worker), port(Role::server)};
}

double SimMessenger::take_last_send_end(int thread) {
  const auto node = last_send_end_.extract(thread);
  return node.empty() ? 0 : node.mapped();
}

}  // namespace gradmeter::dataparallel
