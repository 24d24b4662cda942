// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/simulation/messages.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "core/format.hpp"
#include "dataparallel/fabric/simulation/context.hpp"

namespace gradmeter::dataparallel {

/// A receive. It completes when its message arrives; the time of arrival may change until the message's first byte has
/// arrived.
class PointToPoint::Receiving final : public SimPendingCall {
 public:
  Receiving(PointToPoint& owner, Channel& channel, std::string label)
      : SimPendingCall(owner.context_.scheduler, std::move(label)), owner_(owner), channel_(channel) {}
  bool done() const override {
    if (!has_finish_time()) owner_.match(channel_);
    return SimPendingCall::done();
  }
  void wait() override {
    for (owner_.match(channel_); !has_finish_time(); owner_.match(channel_)) {
      channel_.queue.reader = thread();
      sleep(owner_.context_.network.expected(channel_.queue));
      channel_.queue.reader = -1;
    }
    SimPendingCall::wait();
  }

 private:
  PointToPoint& owner_;
  Channel& channel_;
};

PointToPoint::Channel& PointToPoint::channel(Group g, int from, int to) {
  return channels_.try_emplace({g.id, from, to}, to).first->second;
}

Ticket PointToPoint::send(Group g, int world_rank, int peer, ConstBuffer b) {
  const int to = context_.groups.world_rank(g, peer);
  auto ticket = std::make_shared<SimPendingCall>(context_.scheduler, fmt::format("send to {}", peer));
  const auto sending = context_.network.send(world_rank, to, b.bytes());
  Packet p{.from = world_rank};
  const std::size_t moved = context_.sim_machine.time_only ? 0 : b.bytes();
  p.payload = std::make_shared<std::vector<std::byte>>(b.host(), b.host() + moved);
  ticket->finish(sending.begin, SimNetwork::send_end(sending), b.bytes(), b.bytes());
  if (SimNetwork::send_end(sending) <= context_.fails_at(world_rank))
    context_.network.deliver(channel(g, world_rank, to).queue, std::move(p), sending);
  return ticket;
}

Ticket PointToPoint::receive(Group g, int world_rank, int peer, Buffer b) {
  Channel& from = channel(g, context_.groups.world_rank(g, peer), world_rank);
  auto ticket = std::make_shared<Receiving>(*this, from, fmt::format("a message from rank {}", peer));
  from.receiving.emplace_back(ticket, b);
  match(from);
  return ticket;
}

void PointToPoint::match(Channel& channel) {
  context_.network.settle(channel.queue);
  while (!channel.queue.arrivals.empty() && !channel.receiving.empty()) {
    auto packet = channel.queue.arrivals.extract(channel.queue.arrivals.begin());
    const auto& data = *packet.mapped().payload;
    auto [ticket, buffer] = std::move(channel.receiving.front());
    channel.receiving.pop_front();
    if (data.size() != buffer.bytes() && !context_.sim_machine.time_only)
      throw std::logic_error("a message and its receive differ in length");
    if (!data.empty()) std::memcpy(buffer.host(), data.data(), data.size());
    ticket->finish(ticket->posted(), std::max(std::get<0>(packet.key()), ticket->posted()), 0, 0);
  }
}

/// A port on which every message arrives once and in order, around a port on which messages get lost, come twice or
/// overtake each other. Used if delivery faults are injected; the tasks that use the port need not know of them.
/// The port numbers the messages to each rank, and keeps those that are not acknowledged. If an acknowledgement is
/// overdue, the oldest of them is sent again, each time after twice the wait. A receiver accepts only the next number
/// of each sender, drops other messages, and acknowledges if there is room. All this happens within `next` (which may
/// therefore return nothing) and within `close`; it is not counted in the tickets of the task. Source: TCP's sequence
/// numbers, cumulative acknowledgements and backoff (RFC 9293, RFC 6298).
class ReliablePort final : public Port {
 public:
  /// Sent behind every payload. number: the message's number, or `acknowledgement`. received: how many messages of the
  /// other port have been accepted.
  struct Stamp {
    std::uint64_t number = 0, received = 0;
  };

  /// role, rank: the task that the port belongs to.
  ReliablePort(std::unique_ptr<Port> inner, const SimContext& context, std::shared_ptr<PortSet> port_set, Role role,
               int rank)
      : inner_(std::move(inner)), context_(context), port_set_(std::move(port_set)), role_(role), rank_(rank) {}

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    if (!inner_->draft(to, bytes + sizeof(Stamp))) return std::nullopt;
    peers_[to].draft.assign(bytes, {});
    return peers_[to].draft;
  }

  Ticket post(int to, const MessageHeader& header, const char* label) override {
    Peer& peer = peers_[to];
    if (header.bytes > peer.draft.size()) throw std::logic_error("a message without a draft of its length");
    peer.draft.resize(header.bytes);
    if (peer.unacknowledged.empty()) set_timer(to, peer, 0);
    peer.unacknowledged.push_back({header, std::exchange(peer.draft, {}), label});
    if (Ticket t = send(to, peer.unacknowledged.back(), peer.posted++)) return t;
    throw std::logic_error("a port was asked for messages between a draft and its post, which then has no room");
  }

  std::optional<Message> next(const char* why, double deadline, int from) override {
    for (;;) {
      auto message = inner_->next(why, std::min(deadline, send_due()), from);
      if (!message || take(*message)) return message;
    }
  }

  /// Waits until all messages have arrived. It need not repeat lost acknowledgements after that: peers see that the
  /// port is closed.
  void close() override {
    for (double due = send_due(); due < EventScheduler::forever; due = send_due()) {
      if (auto message = inner_->next("its messages to arrive", due)) take(*message);
    }
    port_set_->closed.emplace(role_, rank_);
  }

 private:
  struct Posted {
    MessageHeader header = {};
    std::vector<std::byte> payload = {};
    const char* label = "acknowledge";
  };
  /// This port's state for one rank.
  struct Peer {
    std::vector<std::byte> draft = {};
    std::uint64_t posted = 0, received = 0;
    std::deque<Posted> unacknowledged = {};  ///< the last messages posted
    double due = 0;                          ///< when the first unacknowledged message is sent again [s]
    int tries = 0;
  };
  /// The number of a message that only acknowledges.
  static constexpr auto acknowledgement = std::numeric_limits<std::uint64_t>::max();
  static constexpr int most_tries = 40;  ///< then the message is given up; the scheduler reports who waits for it

  /// Sets the time of the next repetition of a message to rank `to`. The first wait is the time of ten of the longest
  /// messages, since receivers take one message at a time.
  void set_timer(int to, Peer& peer, int tries) {
    const auto world_rank = [&](int r) {
      return static_cast<std::uint32_t>(port_set_->members[static_cast<std::size_t>(r)]);
    };
    const double first_wait =
        10 * context_.machine().link(world_rank(rank_), world_rank(to)).seconds(slot_bytes(port_set_->options));
    peer.tries = tries;
    peer.due = tries > most_tries ? EventScheduler::forever : context_.now() + std::ldexp(first_wait, tries);
  }

  /// Sends a message with its stamp; null: there is no room now.
  Ticket send(int to, const Posted& p, std::uint64_t number) {
    const auto room = inner_->draft(to, p.payload.size() + sizeof(Stamp));
    if (!room) return nullptr;
    const Stamp stamp{number, peers_[to].received};
    std::ranges::copy(p.payload, room->begin());
    std::memcpy(room->data() + p.payload.size(), &stamp, sizeof stamp);
    MessageHeader header = p.header;
    header.bytes = room->size();
    return inner_->post(to, header, p.label);
  }

  /// Sends overdue messages again. Returns the time at which the next message must be sent again [s].
  double send_due() {
    double next = EventScheduler::forever;
    for (auto& [rank, peer] : peers_) {
      if (port_set_->closed.contains({opposite(role_), rank})) peer.unacknowledged.clear();
      if (peer.unacknowledged.empty()) continue;
      if (peer.due <= context_.now()) {
        const auto sent = send(rank, peer.unacknowledged.front(), peer.posted - peer.unacknowledged.size());
        set_timer(rank, peer, peer.tries + (sent ? 1 : 0));
      }
      next = std::min(next, peer.due);
    }
    return next;
  }

  /// Removes a message's stamp. Returns whether the message is for the task.
  bool take(Message& m) {
    if (m.is_failure_notice) {
      port_set_->closed.emplace(opposite(role_), m.from);
      return true;
    }
    Peer& peer = peers_[m.from];
    Stamp stamp;
    m.header.bytes -= sizeof stamp;
    std::memcpy(&stamp, m.payload.data() + m.header.bytes, sizeof stamp);
    m.payload = m.payload.first(m.header.bytes);
    for (; peer.posted - peer.unacknowledged.size() < stamp.received; set_timer(m.from, peer, 0)) {
      peer.unacknowledged.pop_front();
    }
    if (stamp.number == acknowledgement) return false;
    const bool is_next = stamp.number == peer.received;
    if (is_next) ++peer.received;
    send(m.from, {}, acknowledgement);
    return is_next;
  }

  const std::unique_ptr<Port> inner_;
  const SimContext& context_;
  const std::shared_ptr<PortSet> port_set_;
  const Role role_;
  const int rank_;
  std::map<int, Peer> peers_;
};

/// A port in virtual time; injects delivery faults. The destructor does nothing, because after a failure it may run at
/// any time.
class SimMessenger::SimPort final : public Port {
 public:
  SimPort(SimMessenger& messenger, std::shared_ptr<PortSet> port_set, Role role, int rank)
      : messenger_(messenger),
        context_(messenger.context_),
        port_set_(std::move(port_set)),
        role_(role),
        world_rank_(port_set_->members[static_cast<std::size_t>(rank)]),
        queue_(port_set_->queues(role)[static_cast<std::size_t>(rank)]),
        peers_(port_set_->members.size()) {}

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    Peer& receiver = peer(to);
    if (bytes > port_set_->options.payload_bytes) {
      throw std::logic_error(fmt::format("a message of {} bytes through a port that was opened for {} at most", bytes,
                                         port_set_->options.payload_bytes));
    }
    while (!receiver.leaving.empty() && receiver.leaving.front() <= context_.now()) receiver.leaving.pop_front();
    if (static_cast<int>(receiver.leaving.size()) >= port_set_->options.in_flight) {
      receiver.is_refused = true;
      return std::nullopt;
    }
    receiver.is_refused = false;
    receiver.draft = std::make_shared<std::vector<std::byte>>(bytes);
    return std::span<std::byte>(*receiver.draft);
  }

  Ticket post(int to, const MessageHeader& header, const char* label) override {
    Peer& receiver = peer(to);
    if (!receiver.draft || header.bytes > receiver.draft->size()) {
      throw std::logic_error(
          fmt::format("a message of {} bytes to rank {} without a draft of that length", header.bytes, to));
    }
    receiver.draft->resize(header.bytes);
    Packet packet{.from = world_rank_};
    packet.header = header;
    packet.payload = std::exchange(receiver.draft, nullptr);
    auto ticket = std::make_shared<SimPendingCall>(context_.scheduler, label);
    MessageQueue& queue = port_set_->queues(opposite(role_))[static_cast<std::size_t>(to)];
    if (queue.owner == world_rank_) {
      ticket->finish(context_.now(), context_.now(), 0, 0);
      context_.network.put(queue, std::move(packet));
      return ticket;
    }
    const auto sending = context_.network.send(world_rank_, queue.owner, sizeof(MessageHeader) + header.bytes);
    const double left = SimNetwork::send_end(sending);
    ticket->finish(sending.begin, left, header.bytes, header.bytes);
    receiver.leaving.push_back(left);
    double& last_end = messenger_.last_send_end_[context_.scheduler.running_thread()];
    last_end = std::max(last_end, left);
    deliver_with_faults(queue, receiver.posted++, packet, sending);
    return ticket;
  }

  std::optional<Message> next(const char* why, double deadline, int) override {
    for (;;) {
      context_.network.settle(queue_);
      const double now = context_.now();
      if (!queue_.arrivals.empty() && std::get<0>(queue_.arrivals.begin()->first) <= now) return take();
      const double leaves = first_to_leave();
      if (leaves <= now) {
        for (Peer& p : peers_) p.is_refused = p.is_refused && p.leaving.front() > now;
        return std::nullopt;
      }
      if (deadline <= now) return std::nullopt;
      queue_.reader = context_.scheduler.running_thread();
      context_.scheduler.block(queue_.reader, why, std::min({context_.network.expected(queue_), leaves, deadline}));
      queue_.reader = -1;
    }
  }

 private:
  /// This port's state for one receiver.
  struct Peer {
    std::shared_ptr<std::vector<std::byte>> draft = {};
    std::deque<double> leaving = {};  ///< when the messages to this receiver will have left [s], in order
    std::uint64_t posted = 0;
    bool is_refused = false;  ///< a draft was refused, and `next` has not reported room since
  };
  Peer& peer(int to) {
    if (to < 0 || to >= static_cast<int>(peers_.size())) {
      throw std::logic_error(fmt::format("there is no rank {} to write to", to));
    }
    return peers_[static_cast<std::size_t>(to)];
  }

  void deliver_with_faults(MessageQueue& queue, std::uint64_t number, const Packet& packet,
                           const SimNetwork::Passage& sending) {
    if (SimNetwork::send_end(sending) > context_.fails_at(world_rank_)) return;
    const MessageRoute route{.from = world_rank_, .to = queue.owner, .to_role = opposite(role_), .number = number};
    const DeliveryFault fault =
        context_.sim_machine.delivery_fault ? context_.sim_machine.delivery_fault(route) : DeliveryFault{};
    for (int i = 0; i < fault.copies; ++i)
      context_.network.deliver(queue, packet, sending, fault.delay_s.at(static_cast<std::size_t>(i)));
  }

  /// The time at which there will be room for a draft that was refused [s].
  double first_to_leave() const {
    double first = EventScheduler::forever;
    for (const Peer& p : peers_) {
      if (p.is_refused) first = std::min(first, p.leaving.front());
    }
    return first;
  }

  Message take() {
    auto node = queue_.arrivals.extract(queue_.arrivals.begin());
    last_ = std::move(node.mapped());
    const auto& m = port_set_->members;
    const auto from = std::find(m.begin(), m.end(), last_.from) - m.begin();
    Message message{
        .from = static_cast<int>(from), .is_failure_notice = last_.is_failure_notice, .header = last_.header};
    if (last_.payload) message.payload = *last_.payload;
    return message;
  }

  SimMessenger& messenger_;
  SimContext& context_;
  std::shared_ptr<PortSet> port_set_;
  Role role_;
  int world_rank_;
  MessageQueue& queue_;
  std::vector<Peer> peers_;
  Packet last_;  ///< the packet returned last, whose payload may still be read
};

std::shared_ptr<PortSet> SimMessenger::make(Group group, const PortOptions& options) {
  auto port_set = std::make_shared<PortSet>();
  port_set->options = options;
  port_set->members = context_.groups.members(group);
  for (const int world_rank : port_set->members) {
    port_set->worker_queues.emplace_back(world_rank);
    port_set->server_queues.emplace_back(world_rank);
  }
  for (const int failing : port_set->members) {
    if (context_.fails_at(failing) == EventScheduler::forever) continue;
    const double ends = std::max(context_.now(), context_.fails_at(failing));
    for (const Role role : {Role::worker, Role::server}) {
      for (MessageQueue& queue : port_set->queues(role)) {
        if (queue.owner == failing) continue;
        Packet p{.from = failing};
        p.is_failure_notice = true;
        const core::Link& link =
            context_.machine().link(static_cast<std::uint32_t>(failing), static_cast<std::uint32_t>(queue.owner));
        context_.network.deliver_at(queue, std::move(p), ends + link.latency_s);
      }
    }
  }
  return port_set;
}

Ports SimMessenger::open(Group group, int world_rank, PortOptions options) {
  const int rank = context_.groups.position(group, world_rank);
  if (options.in_flight < 1) throw std::logic_error("ports that may have no message on its way cannot send; use 1");
  if (context_.sim_machine.delivery_fault) options.payload_bytes += sizeof(ReliablePort::Stamp);
  auto& port_set = port_sets_[{group.id, calls_[{group.id, world_rank}]++}];
  if (!port_set) port_set = make(group, options);
  if (port_set->options.payload_bytes != options.payload_bytes || port_set->options.in_flight != options.in_flight) {
    throw std::logic_error(fmt::format("rank {} opens its ports with other options than its peers", world_rank));
  }
  const auto port = [&](Role role) -> std::unique_ptr<Port> {
    auto bare = std::make_unique<SimPort>(*this, port_set, role, rank);
    if (!context_.sim_machine.delivery_fault) return bare;
    return std::make_unique<ReliablePort>(std::move(bare), context_, port_set, role, rank);
  };
  return {port(Role::worker), port(Role::server)};
}

double SimMessenger::take_last_send_end(int thread) {
  const auto node = last_send_end_.extract(thread);
  return node.empty() ? 0 : node.mapped();
}

}  // namespace gradmeter::dataparallel
