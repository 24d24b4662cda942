// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/ranks/messenger.hpp"

#include <chrono>
#include <cstring>
#include <thread>

#include "core/format.hpp"
#include "runtime/clock.hpp"
#include "runtime/transport/shared_memory_transport.hpp"

namespace gradmeter::dataparallel {

SendQueue::SendQueue(runtime::Transport& transport, runtime::Arena& arena, const PortOptions& o)
    : transport_(transport), payload_bytes_(o.payload_bytes) {
  const auto ranks = static_cast<std::size_t>(transport.size()), in_flight = static_cast<std::size_t>(o.in_flight);
  const std::size_t header_bytes = slot_bytes({.payload_bytes = 0});
  for (const Role role : {Role::worker, Role::server}) {
    destinations_[role].resize(ranks);
    const std::span<std::byte> headers = arena.take(ranks * in_flight * header_bytes);
    for (std::size_t i = 0; i < ranks * in_flight; ++i) {
      destinations_[role][i / in_flight].headers.push_back(headers.subspan(i * header_bytes, sizeof(MessageHeader)));
    }
    for (std::size_t i = 0; i < std::min(held_payloads, ranks * in_flight); ++i) {
      drafts_[role].push_back(arena.take(slot_bytes(o)));
    }
  }
}

void SendQueue::check_length(std::size_t bytes) const {
  if (bytes <= payload_bytes_) return;
  throw std::logic_error(fmt::format("a message of {} bytes was drafted where {} is the most", bytes, payload_bytes_));
}

std::optional<std::span<std::byte>> SendQueue::draft(Role from, int to, std::size_t bytes) {
  check_length(bytes);
  auto& [headers, draft] = destination(from, to);
  auto& free = drafts_[from];
  if (headers.empty() || (bytes > 0 && draft.empty() && free.empty())) return std::nullopt;
  if (bytes > 0 && draft.empty()) draft = free.back(), free.pop_back();
  return draft.first(bytes);
}

OutgoingMessage SendQueue::prepare(Role from, int to, const MessageHeader& h, std::span<const std::byte> payload,
                                   const char* label) {
  check_length(h.bytes);
  auto& [headers, draft] = destination(from, to);
  OutgoingMessage d{.from = from, .to = to, .payload = payload};
  if (headers.empty()) return d;
  if (h.bytes > 0 && payload.empty() && h.payload_place == 0) {
    d.draft = std::exchange(draft, {});
    if (d.draft.empty()) throw std::logic_error("a message was posted without a draft");
    d.payload = d.draft.first(h.bytes);
  }
  d.header = headers.back();
  headers.pop_back();
  std::memcpy(d.header.data(), &h, sizeof h);
  d.ticket = std::make_shared<SendTicket>(label, runtime::host_clock(), to == transport_.rank() ? 0 : h.bytes);
  return d;
}

void SendQueue::post(OutgoingMessage d) {
  ++unsent_;
  posted_.push_back(std::move(d));
}

void SendQueue::finish(const OutgoingMessage& d) {
  destination(d.from, d.to).headers.push_back(d.header);
  if (!d.draft.empty()) drafts_[d.from].push_back(d.draft);
  d.ticket->finish();
}

void SendQueue::take_posted() {
  std::ranges::move(posted_, std::back_inserter(leaving_));
  posted_.clear();
}

void SendQueue::start(OutgoingMessage& d) {
  d.ticket->stamps.started = runtime::host_clock();
  const runtime::Traffic before = transport_.traffic();
  const Role to = opposite(d.from);
  d.header_sent = transport_.send(d.to, header_channel(to), d.header);
  if (!d.payload.empty()) d.payload_sent = transport_.send(d.to, payload_channel(to), d.payload);
  if ((transport_.traffic() - before).bytes_between_nodes > 0) d.ticket->stamps.bytes_between_nodes = d.payload.size();
  d.started = true;
  if (transport_.zero_copy_from(d.to)) --unsent_;  // the receiver reads it by itself
}

bool SendQueue::move(const std::function<void(const OutgoingMessage&)>& left) {
  bool moved = false;
  for (auto d = leaving_.begin(); d != leaving_.end();) {
    if (!d->started) start(*d), moved = true;
    const bool has_left = transport_.send_done(d->header_sent) && transport_.send_done(d->payload_sent);
    if (has_left && !transport_.zero_copy_from(d->to)) --unsent_;
    if (has_left) left(*d), moved = true;
    d = has_left ? leaving_.erase(d) : d + 1;
  }
  return moved;
}

ReceiveQueue::ReceiveQueue(runtime::Transport& transport, const PortOptions& o)
    : transport_(transport), payload_bytes_(o.payload_bytes) {
  for (const Role to : {Role::worker, Role::server}) {
    for (int from = 0; from < transport.size(); ++from) {
      if (from != transport.rank()) sources_.push_back({.from = from, .to = to});
    }
  }
  for (Source& source : sources_) listen(source);
}

void ReceiveQueue::listen(Source& source) {
  const auto landing = std::as_writable_bytes(std::span(&source.header, 1));
  source.handle = transport_.receive(source.from, header_channel(source.to), landing);
}

/// The next header from that rank, if it has come.
void ReceiveQueue::take_header(Source& source) {
  const std::byte* at = transport_.try_receive(source.handle);
  if (!at) return;
  source.coming.push_back({.from = source.from, .to = source.to});
  IncomingMessage& a = source.coming.back();
  std::memcpy(&a.header, at, sizeof source.header);
  if (a.header.payload_place > 0) a.payload = transport_.peer_memory(transport_.rank(), a.header.payload_place - 1);
  transport_.release(source.handle);
  listen(source);
}

/// Tells the transport where the payload goes. False: there is no memory for it now.
bool ReceiveQueue::land(IncomingMessage& a) {
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

bool ReceiveQueue::has_come(IncomingMessage& a) {
  if (!a.payload && a.landing) a.payload = transport_.try_receive(a.handle);
  return a.payload || a.header.bytes == 0;
}

bool ReceiveQueue::move(const std::function<void(IncomingMessage&)>& deliver) {
  bool moved = false;
  for (Source& source : sources_) {
    take_header(source);
    auto& coming = source.coming;
    for (IncomingMessage& a : coming) {
      if (a.header.bytes > 0 && !a.payload && !a.landing && !land(a)) break;
    }
    for (; !coming.empty() && has_come(coming.front()); coming.pop_front(), moved = true) deliver(coming.front());
  }
  return moved;
}

void ReceiveQueue::release(IncomingMessage& a) {
  if (a.landing) transport_.release(a.handle);
  if (!a.buffer.empty()) free_buffers_[a.to].push_back(std::move(a.buffer));
}

class Messenger::MessengerPort final : public Port {
 public:
  MessengerPort(Messenger& messenger, Role role)
      : messenger_(messenger), role_(role), in_(messenger.inboxes_[role]), backoff_(messenger.spin_policy_) {}
  ~MessengerPort() override { MessengerPort::close(); }
  MessengerPort(const MessengerPort&) = delete;
  MessengerPort& operator=(const MessengerPort&) = delete;

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    const std::lock_guard lock(messenger_.mutex_);
    const auto room = messenger_.send_queue_.draft(role_, to, bytes);
    if (!room) in_.room_wanted = true;
    return room;
  }
  Ticket post(int to, const MessageHeader& header, const char* label) override {
    if (Ticket t = messenger_.post(role_, to, header, {}, label)) return t;
    throw std::logic_error("a message was posted without room");
  }
  Ticket post_from(int to, const MessageHeader& header, std::span<const std::byte> payload,
                   const char* label) override {
    const runtime::Transport& link = *messenger_.link_;
    if (to != link.rank() && !link.can_send_from(payload)) return Port::post_from(to, header, payload, label);
    return messenger_.post(role_, to, header, payload, label);
  }

  std::uint64_t place_of(std::span<const std::byte> memory) const override {
    const auto place = messenger_.link_->place_of(memory);
    return place ? *place + 1 : 0;
  }
  std::byte* peer_memory(int rank, std::uint64_t place) const override {
    return place == 0 ? nullptr : messenger_.link_->peer_memory(rank, place - 1);
  }
  Ticket post_written(int to, const MessageHeader& header, std::span<std::byte>, const char* label) override {
    return messenger_.post(role_, to, header, {}, label);
  }

  /// The sender of the last message learns that it was read.
  void close() override {
    {
      const std::lock_guard lock(messenger_.mutex_);
      messenger_.give_back(std::exchange(in_.reading, {}));
    }
    const std::lock_guard moving(messenger_.moving_);
    messenger_.take_over();
  }
  std::shared_ptr<const void> keep() override {
    const std::lock_guard lock(messenger_.mutex_);
    if (!in_.reading || !in_.reading->buffer.empty()) return nullptr;
    int& kept = in_.kept[in_.reading->from];
    if (kept + 1 >= messenger_.in_flight_) return nullptr;
    ++kept;
    const std::byte* payload = in_.reading->payload;
    return {payload, [&m = messenger_, &kept, a = std::exchange(in_.reading, {})](const std::byte*) {
              const std::lock_guard release(m.mutex_);
              --kept;
              m.give_back(a);
            }};
  }
  bool await(const char* why) override {
    std::unique_lock lock(messenger_.mutex_);
    wait(lock, {.operation = why}, std::numeric_limits<double>::infinity());
    return true;
  }
  void while_waiting(const std::function<bool()>& f) override { helper_ = f; }
  void set_exchanging(bool yes) override {
    const std::lock_guard lock(messenger_.mutex_);
    set_exchanging_locked(yes);
  }

  std::optional<Message> next(const char* why, double deadline, int of) override {
    std::unique_lock lock(messenger_.mutex_);
    messenger_.give_back(std::exchange(in_.reading, {}));
    if (!in_.has_news() && deadline > runtime::host_clock()) {
      const int peer = of < 0 ? -1 : messenger_.world_ranks_.at(static_cast<std::size_t>(of));
      wait(lock, {.operation = why, .peer = peer}, deadline);
    }
    if (in_.error) std::rethrow_exception(in_.error);
    in_.room = in_.room_wanted = false;
    if (in_.arrived.empty()) return std::nullopt;
    const IncomingMessage& a = in_.reading.emplace(std::move(in_.arrived.front()));
    in_.arrived.pop_front();
    return Message{.from = a.from, .header = a.header, .payload = {a.payload, a.header.bytes}};
  }

 private:
  void set_exchanging_locked(bool yes) {
    exchanges_ += yes ? 1 : -1;
    messenger_.worker_polls(exchanges_ > 0, exchanges_ > 0 && helper_);
  }

  /// A worker moves messages itself, since it has nothing else to do. A server sleeps until it is told: it may share a
  /// core with a worker that computes.
  void wait(std::unique_lock<std::mutex>& lock, const runtime::ActivitySnapshot& note, double deadline) {
    // Noted again and again, because whichever thread moves bytes clears notes. A server waits most of the time, for no
    // particular rank, which would explain no hang.
    constexpr double renewal_s = 0.1;
    double noted = -renewal_s, now;
    if (role_ == Role::worker) set_exchanging_locked(true);
    while (!in_.has_news() && (now = runtime::host_clock()) < deadline) {
      if (role_ == Role::server) {
        in_.changed.wait_for(lock, std::chrono::duration<double>(std::min(renewal_s, deadline - now)),
                             [this] { return in_.has_news(); });
        continue;
      }
      if (now - noted >= renewal_s) messenger_.activity_.waiting(note), noted = now;
      lock.unlock();
      const bool moved = messenger_.poll(), helped = helper_ && helper_();
      moved || helped ? backoff_.reset() : backoff_.wait();
      lock.lock();
    }
    if (role_ == Role::server) return;
    set_exchanging_locked(false);
    messenger_.activity_.wait_ended();
  }

  Messenger& messenger_;
  const Role role_;
  Inbox& in_;
  runtime::Backoff backoff_;
  std::function<bool()> helper_;
  int exchanges_ = 0;  ///< begun, and not ended
};

Messenger::Messenger(std::unique_ptr<runtime::Transport> link, runtime::Arena& arena, const PortOptions& o,
                     runtime::Activity& activity, const std::vector<int>& world_ranks, runtime::SpinPolicy spin_policy)
    : in_flight_(o.in_flight),
      spin_policy_(spin_policy),
      activity_(activity),
      world_ranks_(world_ranks),
      receive_queue_(*link, o),
      send_queue_(*link, arena, o),
      link_(std::move(link)),
      doorbell_(link_->use_doorbell()) {}

std::unique_ptr<Port> Messenger::port(Role r) { return std::make_unique<MessengerPort>(*this, r); }

/// Null: there is no room.
Ticket Messenger::post(Role from, int to, const MessageHeader& header, std::span<const std::byte> payload,
                       const char* label) {
  std::unique_lock lock(mutex_);
  OutgoingMessage d = send_queue_.prepare(from, to, header, payload, label);
  Ticket t = d.ticket;
  if (!t) return inboxes_[from].room_wanted = true, nullptr;
  if (to == link_->rank()) {
    const std::byte* const at =
        header.payload_place > 0 ? link_->peer_memory(to, header.payload_place - 1) : d.payload.data();
    IncomingMessage own{.from = to, .to = opposite(from), .header = header, .payload = at};
    own.own = std::move(d);
    deliver(std::move(own));
  } else {
    send_queue_.post(std::move(d));
  }
  lock.unlock();
  poll();
  return t;
}

void Messenger::deliver(IncomingMessage a) {
  Inbox& in = inboxes_[a.to];
  in.arrived.push_back(std::move(a));
  if (!in.worker_takes_messages) in.changed.notify_one();
}

/// While a worker polls nobody need wake the engine's thread, and while it takes the server's messages too (`helps`)
/// nobody the server's.
void Messenger::worker_polls(bool yes, bool helps) {
  worker_polls_ = yes;
  if (engine_sleeps_) doorbell_->arm(!yes);
  Inbox& of_server = inboxes_[Role::server];
  of_server.worker_takes_messages = helps;
  if (!yes && of_server.has_news()) of_server.changed.notify_one();
}

void Messenger::sleep_until_rung(const std::function<bool()>& needed) {
  constexpr double between_polls = 50e-6, longest = 2e-3;
  if (!doorbell_) return std::this_thread::sleep_for(std::chrono::duration<double>(between_polls));
  const std::uint32_t seen = doorbell_->rings();
  const auto note = [this](bool yes) {
    const std::lock_guard lock(mutex_);
    engine_sleeps_ = yes;
    doorbell_->arm(yes && !worker_polls_);
  };
  note(true);
  if (!poll() && !needed()) doorbell_->sleep(seen, longest);
  note(false);
}

void Messenger::wake() {
  if (doorbell_) doorbell_->wake();
}

void Messenger::pause(bool yes) {
  const std::lock_guard moving(moving_);
  paused_ = yes;
}

/// After a message was read: what the own rank sent may change at once, another's at the next poll.
void Messenger::give_back(std::optional<IncomingMessage> a) {
  if (a && a->own.ticket) return finish(a->own);
  if (a) read_.push_back(std::move(*a));
}

void Messenger::finish(const OutgoingMessage& d) {
  send_queue_.finish(d);
  Inbox& sender = inboxes_[d.from];
  sender.room = sender.room_wanted;
  if (sender.room && !sender.worker_takes_messages) sender.changed.notify_one();
}

/// The poll takes what was posted, and lets senders of messages that were read know. Were there any of these?
bool Messenger::take_over() {
  std::vector<IncomingMessage> read;
  {
    const std::lock_guard lock(mutex_);
    send_queue_.take_posted();
    read.swap(read_);
  }
  for (IncomingMessage& a : read) receive_queue_.release(a);
  return !read.empty();
}

bool Messenger::poll() {
  const std::unique_lock moving(moving_, std::try_to_lock);
  if (!moving || paused_) return false;
  const bool released = take_over();
  link_->progress();
  const bool left = send_queue_.move([this](const OutgoingMessage& d) {
    const std::lock_guard lock(mutex_);
    finish(d);
  });
  const bool came = receive_queue_.move([this](IncomingMessage& a) {
    const std::lock_guard lock(mutex_);
    deliver(std::move(a));
  });
  return left || came || released;
}

void Messenger::fail(const std::exception_ptr& e) {
  const std::lock_guard lock(mutex_);
  for (Inbox& in : inboxes_.all) {
    if (!in.error) in.error = e, in.changed.notify_all();
  }
}

}  // namespace gradmeter::dataparallel
