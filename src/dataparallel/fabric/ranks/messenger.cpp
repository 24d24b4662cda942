// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/ranks/messenger.hpp"

#include <chrono>
#include <cstring>
#include <thread>

#include "core/format.hpp"
#include "runtime/clock.hpp"
#include "runtime/transport/shared_memory_transport.hpp"

namespace gradmeter::dataparallel {

SendQueue::SendQueue(runtime::Transport& transport, runtime::Arena& arena, const PortOptions& options)
    : transport_(transport), max_payload_bytes_(options.payload_bytes) {
  const auto ranks = static_cast<std::size_t>(transport.size()),
             in_flight = static_cast<std::size_t>(options.in_flight);
  const std::size_t header_bytes = slot_bytes({.payload_bytes = 0});
  for (const Role role : {Role::worker, Role::server}) {
    destinations_[role].resize(ranks);
    const std::span<std::byte> headers = arena.take(ranks * in_flight * header_bytes);
    for (std::size_t i = 0; i < ranks * in_flight; ++i) {
      destinations_[role][i / in_flight].headers.push_back(headers.subspan(i * header_bytes, sizeof(MessageHeader)));
    }
    for (std::size_t i = 0; i < std::min(held_payloads, ranks * in_flight); ++i) {
      drafts_[role].push_back(arena.take(slot_bytes(options)));
    }
  }
}

void SendQueue::check_length(std::size_t bytes) const {
  if (bytes <= max_payload_bytes_) return;
  throw std::logic_error(
      fmt::format("a message of {} bytes was drafted where {} is the most", bytes, max_payload_bytes_));
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
  OutgoingMessage message{.from_role = from, .to = to, .payload = payload};
  if (headers.empty()) return message;
  if (h.bytes > 0 && payload.empty() && h.payload_place == 0) {
    message.draft = std::exchange(draft, {});
    if (message.draft.empty()) throw std::logic_error("a message was posted without a draft");
    message.payload = message.draft.first(h.bytes);
  }
  message.header = headers.back();
  headers.pop_back();
  std::memcpy(message.header.data(), &h, sizeof h);
  message.ticket = std::make_shared<SendTicket>(label, runtime::host_clock(), to == transport_.rank() ? 0 : h.bytes);
  return message;
}

void SendQueue::post(OutgoingMessage message) {
  ++needing_polls_;
  posted_.push_back(std::move(message));
}

void SendQueue::finish(const OutgoingMessage& message) {
  destination(message.from_role, message.to).headers.push_back(message.header);
  if (!message.draft.empty()) drafts_[message.from_role].push_back(message.draft);
  message.ticket->finish();
}

void SendQueue::take_posted() {
  std::ranges::move(posted_, std::back_inserter(leaving_));
  posted_.clear();
}

void SendQueue::start(OutgoingMessage& message) {
  message.ticket->call_facts.started = runtime::host_clock();
  const runtime::Traffic before = transport_.traffic();
  const Role to = opposite(message.from_role);
  message.header_sent = transport_.send(message.to, header_channel(to), message.header);
  if (!message.payload.empty())
    message.payload_sent = transport_.send(message.to, payload_channel(to), message.payload);
  if ((transport_.traffic() - before).bytes_between_nodes > 0)
    message.ticket->call_facts.bytes_between_nodes = message.payload.size();
  message.started = true;
  if (transport_.zero_copy_from(message.to)) --needing_polls_;  // the receiver reads it without help of this rank
}

bool SendQueue::move(const std::function<void(const OutgoingMessage&)>& left) {
  bool moved = false;
  for (auto message = leaving_.begin(); message != leaving_.end();) {
    if (!message->started) start(*message), moved = true;
    const bool has_left = transport_.send_done(message->header_sent) && transport_.send_done(message->payload_sent);
    if (has_left && !transport_.zero_copy_from(message->to)) --needing_polls_;
    if (has_left) left(*message), moved = true;
    message = has_left ? leaving_.erase(message) : message + 1;
  }
  return moved;
}

ReceiveQueue::ReceiveQueue(runtime::Transport& transport, const PortOptions& options)
    : transport_(transport), max_payload_bytes_(options.payload_bytes) {
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

/// Takes the next header from that rank, if it has arrived.
void ReceiveQueue::take_header(Source& source) {
  const std::byte* at = transport_.try_receive(source.handle);
  if (!at) return;
  source.coming.push_back({.from = source.from, .to_role = source.to});
  IncomingMessage& message = source.coming.back();
  std::memcpy(&message.header, at, sizeof source.header);
  if (message.header.payload_place > 0)
    message.payload = transport_.peer_memory(transport_.rank(), message.header.payload_place - 1);
  transport_.release(source.handle);
  listen(source);
}

/// Posts the receive for a message's payload. False: there is no memory for the payload now.
bool ReceiveQueue::land(IncomingMessage& message) {
  if (!transport_.zero_copy_from(message.from)) {
    auto& free = free_buffers_[message.to_role];
    if (free.empty() && buffers_made_[message.to_role] < held_payloads)
      free.emplace_back(max_payload_bytes_), ++buffers_made_[message.to_role];
    if (free.empty()) return false;
    message.buffer = std::move(free.back());
    free.pop_back();
  }
  const std::span<std::byte> landing(message.buffer);
  message.handle = transport_.receive(message.from, payload_channel(message.to_role),
                                      landing.first(message.buffer.empty() ? 0 : message.header.bytes));
  return message.is_landing = true;
}

bool ReceiveQueue::has_come(IncomingMessage& message) {
  if (!message.payload && message.is_landing) message.payload = transport_.try_receive(message.handle);
  return message.payload || message.header.bytes == 0;
}

bool ReceiveQueue::move(const std::function<void(IncomingMessage&)>& deliver) {
  bool moved = false;
  for (Source& source : sources_) {
    take_header(source);
    auto& coming = source.coming;
    for (IncomingMessage& message : coming) {
      if (message.header.bytes > 0 && !message.payload && !message.is_landing && !land(message)) break;
    }
    for (; !coming.empty() && has_come(coming.front()); coming.pop_front(), moved = true) deliver(coming.front());
  }
  return moved;
}

void ReceiveQueue::release(IncomingMessage& message) {
  if (message.is_landing) transport_.release(message.handle);
  if (!message.buffer.empty()) free_buffers_[message.to_role].push_back(std::move(message.buffer));
}

class Messenger::MessengerPort final : public Port {
 public:
  MessengerPort(Messenger& messenger, Role role)
      : messenger_(messenger), role_(role), inbox_(messenger.inboxes_[role]), backoff_(messenger.spin_policy_) {}
  ~MessengerPort() override { MessengerPort::close(); }
  MessengerPort(const MessengerPort&) = delete;
  MessengerPort& operator=(const MessengerPort&) = delete;

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    const std::lock_guard lock(messenger_.mutex_);
    const auto room = messenger_.send_queue_.draft(role_, to, bytes);
    if (!room) inbox_.room_wanted = true;
    return room;
  }
  Ticket post(int to, const MessageHeader& header, const char* label) override {
    if (Ticket t = messenger_.post(role_, to, header, {}, label)) return t;
    throw std::logic_error("a message was posted without room");
  }
  Ticket post_from(int to, const MessageHeader& header, std::span<const std::byte> payload,
                   const char* label) override {
    const runtime::Transport& transport = *messenger_.transport_;
    if (to != transport.rank() && !transport.can_send_from(payload)) return Port::post_from(to, header, payload, label);
    return messenger_.post(role_, to, header, payload, label);
  }

  std::uint64_t place_of(std::span<const std::byte> memory) const override {
    const auto place = messenger_.transport_->memory_number_of(memory);
    return place ? *place + 1 : 0;
  }
  std::byte* peer_memory(int rank, std::uint64_t place) const override {
    return place == 0 ? nullptr : messenger_.transport_->peer_memory(rank, place - 1);
  }
  Ticket post_written(int to, const MessageHeader& header, std::span<std::byte>, const char* label) override {
    return messenger_.post(role_, to, header, {}, label);
  }

  /// Tells the sender of the last message that it was read.
  void close() override {
    {
      const std::lock_guard lock(messenger_.mutex_);
      messenger_.give_back(std::exchange(inbox_.reading, {}));
    }
    const std::lock_guard moving(messenger_.poll_mutex_);
    messenger_.take_posted_and_release_read();
  }
  std::shared_ptr<const void> keep() override {
    const std::lock_guard lock(messenger_.mutex_);
    if (!inbox_.reading || !inbox_.reading->buffer.empty()) return nullptr;
    int& kept = inbox_.kept[inbox_.reading->from];
    if (kept + 1 >= messenger_.max_in_flight_) return nullptr;
    ++kept;
    const std::byte* payload = inbox_.reading->payload;
    return {payload, [&m = messenger_, &kept, message = std::exchange(inbox_.reading, {})](const std::byte*) {
              const std::lock_guard release(m.mutex_);
              --kept;
              m.give_back(message);
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

  std::optional<Message> next(const char* why, double deadline, int from) override {
    std::unique_lock lock(messenger_.mutex_);
    messenger_.give_back(std::exchange(inbox_.reading, {}));
    if (!inbox_.has_news() && deadline > runtime::host_clock()) {
      const int peer = from < 0 ? -1 : messenger_.world_ranks_.at(static_cast<std::size_t>(from));
      wait(lock, {.operation = why, .peer = peer}, deadline);
    }
    if (inbox_.error) std::rethrow_exception(inbox_.error);
    inbox_.room = inbox_.room_wanted = false;
    if (inbox_.arrived.empty()) return std::nullopt;
    const IncomingMessage& message = inbox_.reading.emplace(std::move(inbox_.arrived.front()));
    inbox_.arrived.pop_front();
    return Message{.from = message.from, .header = message.header, .payload = {message.payload, message.header.bytes}};
  }

 private:
  void set_exchanging_locked(bool yes) {
    exchanges_ += yes ? 1 : -1;
    messenger_.set_worker_polls(exchanges_ > 0, exchanges_ > 0 && helper_);
  }

  /// Waits for news of this port. A worker polls meanwhile, since it has nothing else to do. A server sleeps until it
  /// is notified, because it may share a core with a worker that computes.
  void wait(std::unique_lock<std::mutex>& lock, const runtime::ActivitySnapshot& note, double deadline) {
    // The note for the watchdog is renewed, because any thread that moves bytes clears it. A server notes nothing: it
    // waits most of the time, for no particular rank, which would explain no hang.
    constexpr double renewal_s = 0.1;
    double noted = -renewal_s, now;
    if (role_ == Role::worker) set_exchanging_locked(true);
    while (!inbox_.has_news() && (now = runtime::host_clock()) < deadline) {
      if (role_ == Role::server) {
        inbox_.changed.wait_for(lock, std::chrono::duration<double>(std::min(renewal_s, deadline - now)),
                                [this] { return inbox_.has_news(); });
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
  Inbox& inbox_;
  runtime::Backoff backoff_;
  std::function<bool()> helper_;
  int exchanges_ = 0;  ///< the number of phases of exchange that have begun and not ended
};

Messenger::Messenger(std::unique_ptr<runtime::Transport> transport, runtime::Arena& arena, const PortOptions& options,
                     runtime::Activity& activity, const std::vector<int>& world_ranks, runtime::SpinPolicy spin_policy)
    : max_in_flight_(options.in_flight),
      spin_policy_(spin_policy),
      activity_(activity),
      world_ranks_(world_ranks),
      receive_queue_(*transport, options),
      send_queue_(*transport, arena, options),
      transport_(std::move(transport)),
      doorbell_(transport_->use_doorbell()) {}

std::unique_ptr<Port> Messenger::port(Role r) { return std::make_unique<MessengerPort>(*this, r); }

/// Posts a message; null: there is no room.
Ticket Messenger::post(Role from, int to, const MessageHeader& header, std::span<const std::byte> payload,
                       const char* label) {
  std::unique_lock lock(mutex_);
  OutgoingMessage message = send_queue_.prepare(from, to, header, payload, label);
  Ticket t = message.ticket;
  if (!t) return inboxes_[from].room_wanted = true, nullptr;
  if (to == transport_->rank()) {
    const std::byte* const at =
        header.payload_place > 0 ? transport_->peer_memory(to, header.payload_place - 1) : message.payload.data();
    IncomingMessage incoming{.from = to, .to_role = opposite(from), .header = header, .payload = at};
    incoming.outgoing = std::move(message);
    deliver(std::move(incoming));
  } else {
    send_queue_.post(std::move(message));
  }
  lock.unlock();
  poll();
  return t;
}

void Messenger::deliver(IncomingMessage message) {
  Inbox& inbox = inboxes_[message.to_role];
  inbox.arrived.push_back(std::move(message));
  if (!inbox.worker_takes_messages) inbox.changed.notify_one();
}

/// Notes whether a worker polls: then nobody need wake the engine's thread. If the worker also handles the server's
/// messages (`helps`), nobody need wake the server's thread.
void Messenger::set_worker_polls(bool yes, bool helps) {
  worker_polls_ = yes;
  if (engine_sleeps_) doorbell_->arm(!yes);
  Inbox& server_inbox = inboxes_[Role::server];
  server_inbox.worker_takes_messages = helps;
  if (!yes && server_inbox.has_news()) server_inbox.changed.notify_one();
}

void Messenger::sleep_until_rung(const std::function<bool()>& has_other_work) {
  constexpr double between_polls = 50e-6, longest = 2e-3;
  if (!doorbell_) return std::this_thread::sleep_for(std::chrono::duration<double>(between_polls));
  const std::uint32_t seen = doorbell_->rings();
  const auto note = [this](bool yes) {
    const std::lock_guard lock(mutex_);
    engine_sleeps_ = yes;
    doorbell_->arm(yes && !worker_polls_);
  };
  note(true);
  if (!poll() && !has_other_work()) doorbell_->sleep(seen, longest);
  note(false);
}

void Messenger::wake() {
  if (doorbell_) doorbell_->wake();
}

void Messenger::pause(bool yes) {
  const std::lock_guard moving(poll_mutex_);
  paused_ = yes;
}

/// Gives back a message that was read. If this rank has sent it to itself, its memory is free at once; otherwise the
/// next poll tells the sender.
void Messenger::give_back(std::optional<IncomingMessage> message) {
  if (message && message->outgoing.ticket) return finish(message->outgoing);
  if (message) read_.push_back(std::move(*message));
}

void Messenger::finish(const OutgoingMessage& message) {
  send_queue_.finish(message);
  Inbox& sender = inboxes_[message.from_role];
  sender.room = sender.room_wanted;
  if (sender.room && !sender.worker_takes_messages) sender.changed.notify_one();
}

/// Takes over posted messages, and tells senders that their messages were read. Returns whether any message was read.
bool Messenger::take_posted_and_release_read() {
  std::vector<IncomingMessage> read;
  {
    const std::lock_guard lock(mutex_);
    send_queue_.take_posted();
    read.swap(read_);
  }
  for (IncomingMessage& message : read) receive_queue_.release(message);
  return !read.empty();
}

bool Messenger::poll() {
  const std::unique_lock moving(poll_mutex_, std::try_to_lock);
  if (!moving || paused_) return false;
  const bool released = take_posted_and_release_read();
  transport_->progress();
  const bool left = send_queue_.move([this](const OutgoingMessage& message) {
    const std::lock_guard lock(mutex_);
    finish(message);
  });
  const bool came = receive_queue_.move([this](IncomingMessage& message) {
    const std::lock_guard lock(mutex_);
    deliver(std::move(message));
  });
  return left || came || released;
}

void Messenger::fail(const std::exception_ptr& e) {
  const std::lock_guard lock(mutex_);
  for (Inbox& inbox : inboxes_.all) {
    if (!inbox.error) inbox.error = e, inbox.changed.notify_all();
  }
}

}  // namespace gradmeter::dataparallel
