// A port on which every message arrives once and in order, around one on which messages get lost, come twice and
// overtake each other: where delivery faults are injected. The tasks above know nothing of it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "dataparallel/simulation/messenger.hpp"

namespace gradmeter::dataparallel {

/// Numbers the messages to each rank and keeps those that are not acknowledged. The first of them is sent again when
/// its acknowledgement is overdue, each time after twice the wait. A receiver takes each sender's next number, drops
/// all else, and acknowledges, if there is room. That happens within `next`, which then may return empty, and within
/// `close`; the task's tickets count none of it.
/// Source: TCP's sequence numbers, cumulative acknowledgements and backoff (RFC 9293, RFC 6298).
class ReliablePort final : public Port {
 public:
  /// Behind every payload. received: so many messages of the other have been taken.
  struct Stamp {
    std::uint64_t number = 0, received = 0;
  };

  /// role, rank: whose port it is.
  ReliablePort(std::unique_ptr<Port> inner, const SimContext& g, std::shared_ptr<PortSet> e, Role role, int rank)
      : inner_(std::move(inner)), g_(g), port_set_(std::move(e)), role_(role), rank_(rank) {}

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

  std::optional<Message> next(const char* why, double deadline, int of) override {
    for (;;) {
      auto message = inner_->next(why, std::min(deadline, send_due()), of);
      if (!message || take(*message)) return message;
    }
  }

  /// It need not stay to repeat acknowledgements that got lost: its peers see that it is closed.
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
    std::deque<Posted> unacknowledged = {};  ///< the last of the posted ones
    double due = 0;                          ///< when the first of them is sent again [s]
    int tries = 0;
  };
  static constexpr auto acknowledgement = std::numeric_limits<std::uint64_t>::max();  ///< instead of a number
  static constexpr int most_tries = 40;  ///< then it is given up, and the scheduler says who waits for it

  /// The first wait is for ten of the longest messages, since receivers take one at a time. to: whose `peer` it is.
  void set_timer(int to, Peer& peer, int tries) {
    const auto world_rank = [&](int r) {
      return static_cast<std::uint32_t>(port_set_->members[static_cast<std::size_t>(r)]);
    };
    const double first =
        10 * g_.machine().link(world_rank(rank_), world_rank(to)).seconds(slot_bytes(port_set_->options));
    peer.tries = tries;
    peer.due = tries > most_tries ? EventScheduler::forever : g_.now() + std::ldexp(first, tries);
  }

  /// Null: there is no room for it now.
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

  /// Returns when the next message must be sent again [s].
  double send_due() {
    double next = EventScheduler::forever;
    for (auto& [rank, peer] : peers_) {
      if (port_set_->closed.contains({opposite(role_), rank})) peer.unacknowledged.clear();
      if (peer.unacknowledged.empty()) continue;
      if (peer.due <= g_.now()) {
        const auto sent = send(rank, peer.unacknowledged.front(), peer.posted - peer.unacknowledged.size());
        set_timer(rank, peer, peer.tries + (sent ? 1 : 0));
      }
      next = std::min(next, peer.due);
    }
    return next;
  }

  /// Returns whether the task gets it, without its stamp.
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
  const SimContext& g_;
  const std::shared_ptr<PortSet> port_set_;
  const Role role_;
  const int rank_;
  std::map<int, Peer> peers_;
};

}  // namespace gradmeter::dataparallel
