#include "dataparallel/virtual/mail.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/format.hpp"
#include "dataparallel/virtual/operation.hpp"

namespace gradmeter::dataparallel {

/// Nothing is undone when it ends: after a failure that may be at any time.
class VirtualMail::VirtualPort final : public Port {
 public:
  VirtualPort(VirtualMail& office, std::shared_ptr<Exchange> e, Role role, int rank)
      : office_(office),
        g_(office.g_),
        exchange_(std::move(e)),
        role_(role),
        worker_(exchange_->members[static_cast<std::size_t>(rank)]),
        box_(exchange_->boxes(role)[static_cast<std::size_t>(rank)]),
        peers_(exchange_->members.size()) {}

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    Peer& p = peer(to);
    if (bytes > exchange_->options.payload_bytes) {
      throw std::logic_error(fmt::format("a message of {} bytes through a port that was opened for {} at most", bytes,
                                         exchange_->options.payload_bytes));
    }
    while (!p.leaving.empty() && p.leaving.front() <= g_.now()) p.leaving.pop_front();
    if (static_cast<int>(p.leaving.size()) >= exchange_->options.in_flight) {
      p.is_refused = true;
      return std::nullopt;
    }
    p.is_refused = false;
    p.draft = std::make_shared<std::vector<std::byte>>(bytes);
    return std::span<std::byte>(*p.draft);
  }

  Ticket post(int to, const MailHeader& header, const char* label) override {
    Peer& p = peer(to);
    if (!p.draft || header.bytes > p.draft->size()) {
      throw std::logic_error(
          fmt::format("a message of {} bytes to rank {} without a draft of that length", header.bytes, to));
    }
    p.draft->resize(header.bytes);
    Parcel parcel{.from = worker_};
    parcel.header = header;
    parcel.payload = std::exchange(p.draft, nullptr);
    auto ticket = std::make_shared<VirtualOperation>(g_.baton, label);
    Letterbox& box =
        exchange_->boxes(role_ == Role::worker ? Role::server : Role::worker)[static_cast<std::size_t>(to)];
    if (box.owner == worker_) {
      ticket->finish(g_.now(), g_.now(), 0, 0);
      g_.wire.put(box, std::move(parcel));
      return ticket;
    }
    const auto sending = g_.wire.send(worker_, sizeof(MailHeader) + header.bytes);
    ticket->finish(sending.begin, sending.left, header.bytes, header.bytes);
    p.leaving.push_back(sending.left);
    double& last = office_.last_left_[g_.baton.holder()];
    last = std::max(last, sending.left);
    travel(box, p.posted++, parcel, sending);
    return ticket;
  }

  std::optional<Mail> next(const char* why, double deadline, int) override {
    for (;;) {
      g_.wire.settle(box_);
      const double now = g_.now();
      if (!box_.arrivals.empty() && std::get<0>(box_.arrivals.begin()->first) <= now) return take();
      const double leaves = first_to_leave();
      if (leaves <= now) {
        for (Peer& p : peers_) p.is_refused = p.is_refused && p.leaving.front() > now;
        return std::nullopt;
      }
      if (deadline <= now) return std::nullopt;
      box_.reader = g_.baton.holder();
      g_.baton.block(box_.reader, why, std::min({g_.wire.expected(box_), leaves, deadline}));
      box_.reader = -1;
    }
  }

  bool lossy() const override { return g_.machine.fate != nullptr; }

 private:
  /// What this port keeps of one receiver.
  struct Peer {
    std::shared_ptr<std::vector<std::byte>> draft = {};
    std::deque<double> leaving = {};  ///< when its messages are out [s], in order
    std::uint64_t posted = 0;
    bool is_refused = false;  ///< a draft was, and nobody has heard since that there is room
  };
  Peer& peer(int to) {
    if (to < 0 || to >= static_cast<int>(peers_.size())) {
      throw std::logic_error(fmt::format("there is no rank {} to write to", to));
    }
    return peers_[static_cast<std::size_t>(to)];
  }

  void travel(Letterbox& box, std::uint64_t number, const Parcel& parcel, Wire::Sending sending) {
    if (sending.left > g_.dies_at(worker_)) return;
    Fate fate;
    if (g_.machine.fate) {
      const Role to_role = role_ == Role::worker ? Role::server : Role::worker;
      fate = g_.machine.fate({.from = worker_, .to = box.owner, .to_role = to_role, .number = number});
    }
    for (int i = 0; i < fate.copies; ++i)
      g_.wire.deliver(box, parcel, sending, fate.delay_s.at(static_cast<std::size_t>(i)));
  }

  /// When there will be room for a draft that was refused [s].
  double first_to_leave() const {
    double first = Baton::forever;
    for (const Peer& p : peers_) {
      if (p.is_refused) first = std::min(first, p.leaving.front());
    }
    return first;
  }

  Mail take() {
    auto node = box_.arrivals.extract(box_.arrivals.begin());
    last_ = std::move(node.mapped());
    const auto& m = exchange_->members;
    const auto from = std::find(m.begin(), m.end(), last_.from) - m.begin();
    Mail mail{.from = static_cast<int>(from), .obituary = last_.obituary, .header = last_.header};
    if (last_.payload) mail.payload = *last_.payload;
    return mail;
  }

  VirtualMail& office_;
  Ground& g_;
  std::shared_ptr<Exchange> exchange_;
  Role role_;
  int worker_;
  Letterbox& box_;
  std::vector<Peer> peers_;
  Parcel last_;  ///< whose payload somebody may be reading
};

std::shared_ptr<Exchange> VirtualMail::make(Group group, const MailOptions& options) {
  auto e = std::make_shared<Exchange>();
  e->options = options;
  e->members = g_.groups.members(group);
  for (const int worker : e->members) {
    e->workers.emplace_back(worker);
    e->servers.emplace_back(worker);
  }
  for (const int dead : e->members) {
    if (g_.dies_at(dead) == Baton::forever) continue;
    const double heard = std::max(g_.now(), g_.dies_at(dead)) + g_.machine.link.latency_s;
    for (const Role role : {Role::worker, Role::server}) {
      for (Letterbox& box : e->boxes(role)) {
        if (box.owner == dead) continue;
        Parcel p{.from = dead};
        p.obituary = true;
        g_.wire.deliver_at(box, std::move(p), heard);
      }
    }
  }
  return e;
}

Ports VirtualMail::open(Group group, int worker, const MailOptions& options) {
  const int rank = g_.groups.position(group, worker);
  if (options.in_flight < 1) throw std::logic_error("ports that may have no message on its way cannot send; use 1");
  auto& exchange = exchanges_[{group.id, calls_[{group.id, worker}]++}];
  if (!exchange) exchange = make(group, options);
  if (exchange->options.payload_bytes != options.payload_bytes || exchange->options.in_flight != options.in_flight) {
    throw std::logic_error(fmt::format("rank {} opens its ports with other options than its peers", worker));
  }
  return {std::make_unique<VirtualPort>(*this, exchange, Role::worker, rank),
          std::make_unique<VirtualPort>(*this, exchange, Role::server, rank)};
}

double VirtualMail::take_last_left(int thread) {
  const auto node = last_left_.extract(thread);
  return node.empty() ? 0 : node.mapped();
}

}  // namespace gradmeter::dataparallel
