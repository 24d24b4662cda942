#include "dataparallel/ranks/messenger.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/time/clock.hpp"
#include "runtime/transport/doorbell.hpp"

namespace gradmeter::dataparallel {
/// A message on its way. The engine's thread writes `stamps` until it is done.
class Messenger::OutgoingMessage final : public Operation {
 public:
  OutgoingMessage(const char* label, std::uint64_t payload) : label_(label) {
    stamps.posted = runtime::host_clock();
    stamps.bytes_sent = payload;
    stamps.bytes_due = payload;
  }
  bool done() const override { return done_.load(std::memory_order_acquire); }
  const Completion& completion() const override {
    if (!done()) throw std::logic_error("a message's completion was asked for before it had left");
    return stamps;
  }
  std::string_view label() const override { return label_; }
  void finish() {
    stamps.finished = runtime::host_clock();
    done_.store(true, std::memory_order_release);
  }
  Completion stamps;

 private:
  const char* label_;
  std::atomic<bool> done_{false};
};

class Messenger::MessengerPort final : public Port {
 public:
  MessengerPort(Messenger& messenger, Role role)
      : messenger_(messenger), role_(role), backoff_(messenger.spin_policy_) {}
  ~MessengerPort() override { MessengerPort::close(); }
  MessengerPort(const MessengerPort&) = delete;
  MessengerPort& operator=(const MessengerPort&) = delete;

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    check_length(bytes);
    const std::lock_guard lock(messenger_.mutex_);
    Lane& lane = messenger_.lane(role_, to);
    if (!messenger_.free_header(role_, to) || (bytes > 0 && !messenger_.reserve(role_, to))) return no_room();
    return bytes > 0 ? lane.draft->memory.first(bytes) : std::span<std::byte>();
  }

  Ticket post(int to, const MessageHeader& header, const char* label) override {
    std::unique_lock lock(messenger_.mutex_);
    Draft* const draft = header.bytes > 0 ? std::exchange(messenger_.lane(role_, to).draft, nullptr) : nullptr;
    if (header.bytes > 0 && !draft) throw std::logic_error("a message was posted without a draft");
    Ticket t = messenger_.post(role_, to, header, draft,
                               draft ? draft->memory.first(header.bytes) : std::span<std::byte>(), label);
    lock.unlock();
    messenger_.poll();
    return t;
  }

  Ticket post_from(int to, const MessageHeader& header, std::span<const std::byte> payload,
                   const char* label) override {
    check_length(payload.size());
    if (to != messenger_.link_->rank() && !messenger_.link_->can_send_from(payload)) {
      return Port::post_from(to, header, payload, label);
    }
    std::unique_lock lock(messenger_.mutex_);
    if (!messenger_.free_header(role_, to)) return no_room(), nullptr;
    Ticket t = messenger_.post(role_, to, header, nullptr, payload, label);
    lock.unlock();
    messenger_.poll();
    return t;
  }

  /// The sender of the last message learns that it was read.
  void close() override {
    {
      const std::lock_guard lock(messenger_.mutex_);
      messenger_.give_back(std::exchange(messenger_.receive_queue(role_).reading, nullptr));
    }
    messenger_.release_read();
  }
  std::shared_ptr<const void> keep() override {
    const std::lock_guard lock(messenger_.mutex_);
    Arrival*& reading = messenger_.receive_queue(role_).reading;
    if (!reading || reading->buffer) return nullptr;
    return {std::exchange(reading, nullptr), [&m = messenger_](Arrival* a) {
              const std::lock_guard release(m.mutex_);
              m.give_back(a);
            }};
  }
  bool await(const char* why) override {
    std::unique_lock lock(messenger_.mutex_);
    ReceiveQueue& in = messenger_.receive_queue(role_);
    wait(lock, in, {.operation = why}, std::numeric_limits<double>::infinity(),
         [&] { return messenger_.has_news(in); });
    return true;
  }
  void while_waiting(const std::function<bool()>& f) override { helper_ = f; }

  std::optional<Message> next(const char* why, double deadline, int of) override {
    std::unique_lock lock(messenger_.mutex_);
    ReceiveQueue& in = messenger_.receive_queue(role_);
    messenger_.give_back(std::exchange(in.reading, nullptr));
    const auto something = [&] { return messenger_.has_news(in); };
    if (!something() && deadline > runtime::host_clock()) {
      wait(lock, in, {.operation = why, .peer = of < 0 ? -1 : messenger_.world_ranks_.at(static_cast<std::size_t>(of))},
           deadline, something);
    }
    if (messenger_.error_) std::rethrow_exception(messenger_.error_);
    in.room = in.room_wanted = false;
    if (in.arrived.empty()) return std::nullopt;
    in.reading = in.arrived.front();
    in.arrived.pop_front();
    const Arrival& a = *in.reading;
    return Message{
        .from = a.from, .header = a.header, .payload = {a.payload, static_cast<std::size_t>(a.header.bytes)}};
  }

 private:
  void check_length(std::size_t bytes) const {
    if (bytes <= messenger_.options_.payload_bytes) return;
    throw std::logic_error(fmt::format("a message of {} bytes was drafted where {} is the most", bytes,
                                       messenger_.options_.payload_bytes));
  }
  std::nullopt_t no_room() {
    messenger_.receive_queue(role_).room_wanted = true;
    return std::nullopt;
  }

  /// A worker moves messages itself, since it has nothing else to do. A server sleeps until it is told: it may share a
  /// core with a worker that computes.
  template <class Something>
  void wait(std::unique_lock<std::mutex>& lock, ReceiveQueue& in, const runtime::WaitInfo& note, double deadline,
            Something something) {
    // Noted again and again, because whichever thread moves bytes clears notes. A server waits most of the time, for no
    // particular rank, which would explain no hang.
    constexpr double renewal_s = 0.1;
    double noted = -renewal_s, now;
    if (role_ == Role::worker) messenger_.worker_polls(true, helper_ != nullptr);
    while (!something() && (now = runtime::host_clock()) < deadline) {
      if (role_ == Role::server) {
        in.changed.wait_for(lock, std::chrono::duration<double>(std::min(renewal_s, deadline - now)), something);
        continue;
      }
      if (now - noted >= renewal_s) messenger_.activity_.waiting(note), noted = now;
      lock.unlock();
      const bool moved = messenger_.poll(), helped = helper_ && helper_();
      if (moved || helped) {
        backoff_.reset();
      } else {
        backoff_.wait();
      }
      lock.lock();
    }
    if (role_ == Role::server) return;
    messenger_.worker_polls(false, false);
    messenger_.activity_.wait_ended();
  }

  Messenger& messenger_;
  Role role_;
  runtime::Backoff backoff_;
  std::function<bool()> helper_;
};

Messenger::Messenger(runtime::OwnedTransport link, runtime::Arena& arena, const PortOptions& o,
                     runtime::Activity& activity, const std::vector<int>& world_ranks, runtime::SpinPolicy spin_policy)
    : options_(o), spin_policy_(spin_policy), activity_(activity), world_ranks_(world_ranks), link_(std::move(link)) {
  const auto ranks = static_cast<std::size_t>(link_->size()), in_flight = static_cast<std::size_t>(o.in_flight);
  const std::size_t header_bytes = slot_bytes({.payload_bytes = 0});
  doorbell_ = link_->use_doorbell();
  for (const Role role : {Role::worker, Role::server}) {
    lanes_[index(role)].resize(ranks);
    lines_[index(role)].resize(ranks);
    const std::span<std::byte> headers = arena.take(ranks * in_flight * header_bytes);
    for (std::size_t i = 0; i < ranks * in_flight; ++i) {
      auto* const header = reinterpret_cast<MessageHeader*>(headers.data() + i * header_bytes);
      lanes_[index(role)][i / in_flight].headers.push_back({header});
    }
    for (std::size_t i = 0; i < std::min(held_payloads, ranks * in_flight); ++i) {
      drafts_[index(role)].push_back({arena.take(slot_bytes(o))});
    }
    for (int from = 0; from < link_->size(); ++from) {
      if (from != link_->rank()) listen(role, from);
    }
  }
}

std::unique_ptr<Port> Messenger::port(Role r) { return std::make_unique<MessengerPort>(*this, r); }

Messenger::HeaderSlot* Messenger::free_header(Role from, int to) {
  auto& headers = lane(from, to).headers;
  const auto it = std::find_if(headers.begin(), headers.end(), [](const HeaderSlot& s) { return !s.taken; });
  return it == headers.end() ? nullptr : &*it;
}

/// Memory for the lane's next payload. A draft that was never posted is the lane's still.
Messenger::Draft* Messenger::reserve(Role from, int to) {
  Draft*& reserved = lane(from, to).draft;
  if (reserved) return reserved;
  auto& drafts = drafts_[index(from)];
  const auto it = std::find_if(drafts.begin(), drafts.end(), [](const Draft& d) { return !d.taken; });
  if (it == drafts.end()) return nullptr;
  it->taken = true;
  return reserved = &*it;
}

Ticket Messenger::post(Role from, int to, const MessageHeader& header, Draft* draft, std::span<const std::byte> payload,
                       const char* label) {
  Departure d{.ticket = std::make_shared<OutgoingMessage>(label, header.bytes),
              .slot = free_header(from, to),
              .draft = draft,
              .to = to,
              .from = from,
              .payload = payload};
  if (!d.slot) throw std::logic_error("a message was posted without room");
  *d.slot->header = header;
  d.slot->taken = true;
  auto ticket = d.ticket;
  if (to == link_->rank()) {
    deliver_to_self(d);
  } else {
    ++unsent_;
    departing_.push_back(std::move(d));
  }
  return ticket;
}

void Messenger::listen(Role to, int from) {
  Line& line = lines_[index(to)][static_cast<std::size_t>(from)];
  line.handle = link_->receive(from, header_channel(to), std::as_writable_bytes(std::span(&line.header, 1)));
}

void Messenger::deliver_to_self(const Departure& d) {
  d.ticket->stamps.started = d.ticket->stamps.posted;
  d.ticket->stamps.bytes_sent = 0;
  d.ticket->stamps.bytes_due = 0;
  if (free_arrivals_.empty()) free_arrivals_.push_back(&arrivals_.emplace_back());
  Arrival& a = *free_arrivals_.back();
  free_arrivals_.pop_back();
  a = {.from = link_->rank(), .to = other(d.from), .header = *d.slot->header, .payload = d.payload.data(), .own = d};
  deliver(a);
}

void Messenger::deliver(Arrival& a) {
  ReceiveQueue& in = receive_queue(a.to);
  in.arrived.push_back(&a);
  if (!in.helped) in.changed.notify_one();
}

/// While a worker polls nobody need wake the engine's thread, and while it takes the server's messages too (`helps`)
/// nobody the server's.
void Messenger::worker_polls(bool yes, bool helps) {
  worker_polls_ = yes;
  if (dozes_) doorbell_->arm(!yes);
  ReceiveQueue& of_server = receive_queue(Role::server);
  of_server.helped = helps;
  if (!yes && has_news(of_server)) of_server.changed.notify_one();
}

void Messenger::doze(const std::function<bool()>& needed) {
  constexpr double between_polls = 50e-6, longest = 2e-3;
  if (!doorbell_) return std::this_thread::sleep_for(std::chrono::duration<double>(between_polls));
  const std::uint32_t seen = doorbell_->rings();
  const auto dozes = [this](bool yes) {
    const std::lock_guard lock(mutex_);
    dozes_ = yes;
    doorbell_->arm(yes && !worker_polls_);
  };
  dozes(true);
  if (!poll() && !needed()) doorbell_->sleep(seen, longest);
  dozes(false);
}

void Messenger::pause(bool yes) {
  const std::lock_guard moving(moving_);
  paused_ = yes;
}

void Messenger::wake() {
  if (doorbell_) doorbell_->wake();
}

/// After a message was read: what the own rank sent may change at once, another's at the next poll.
void Messenger::give_back(Arrival* a) {
  if (!a) return;
  if (!a->own.ticket) return receive_queue(a->to).read.push_back(a);
  finish(a->own);
  a->own = {};
  free_arrivals_.push_back(a);
}

/// A message has left: its memory is free.
void Messenger::finish(Departure& d) {
  d.slot->taken = false;
  if (d.draft) d.draft->taken = false;
  d.ticket->finish();
  ReceiveQueue& sender = receive_queue(d.from);
  if (!sender.room_wanted) return;
  sender.room = true;
  if (!sender.helped) sender.changed.notify_one();
}

void Messenger::depart(Departure& d) {
  d.ticket->stamps.started = runtime::host_clock();
  const runtime::Traffic before = link_->traffic();
  const Role to = other(d.from);
  d.header_sent = link_->send(d.to, header_channel(to), std::as_bytes(std::span(d.slot->header, 1)));
  if (!d.payload.empty()) d.payload_sent = link_->send(d.to, payload_channel(to), d.payload);
  const auto sent = link_->traffic() - before;
  if (sent.bytes_between_nodes > 0) d.ticket->stamps.bytes_between_nodes = d.payload.size();
  d.started = true;
  if (link_->zero_copy_from(d.to)) --unsent_;  // the receiver reads it by itself
}

bool Messenger::has_left(Departure& d) {
  return link_->send_done(d.header_sent) && (d.payload.empty() || link_->send_done(d.payload_sent));
}

bool Messenger::move_departures() {
  bool moved = false;
  for (std::size_t i = 0; i < travelling_.size();) {
    Departure& d = travelling_[i];
    if (!d.started) depart(d), moved = true;
    if (!has_left(d)) {
      ++i;
      continue;
    }
    if (!link_->zero_copy_from(d.to)) --unsent_;
    {
      const std::lock_guard lock(mutex_);
      finish(d);
    }
    travelling_.erase(travelling_.begin() + static_cast<std::ptrdiff_t>(i));
    moved = true;
  }
  return moved;
}

/// The next header from that rank, if it has come.
void Messenger::take_header(Role to, int from) {
  Line& line = lines_[index(to)][static_cast<std::size_t>(from)];
  const std::byte* at = link_->try_receive(line.handle);
  if (!at) return;
  Arrival* a = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (free_arrivals_.empty()) free_arrivals_.push_back(&arrivals_.emplace_back());
    a = free_arrivals_.back();
    free_arrivals_.pop_back();
  }
  *a = {.from = from, .to = to};
  std::memcpy(&a->header, at, sizeof a->header);
  link_->release(line.handle);
  listen(to, from);
  line.coming.push_back(a);
}

/// Tells the transport where the payload goes. False: there is no memory for it now.
bool Messenger::land(Arrival& a) {
  std::span<std::byte> landing;
  if (!link_->zero_copy_from(a.from)) {
    auto& free = free_buffers_[index(a.to)];
    if (free.empty() && held_buffers_[index(a.to)] < held_payloads) {
      ++held_buffers_[index(a.to)];
      free.push_back(&buffers_.emplace_back(options_.payload_bytes));
    }
    if (free.empty()) return false;
    a.buffer = free.back();
    free.pop_back();
    landing = std::span(*a.buffer).first(a.header.bytes);
  }
  a.handle = link_->receive(a.from, payload_channel(a.to), landing);
  return a.landing = true;
}

bool Messenger::has_come(Arrival& a) {
  if (a.header.bytes == 0) return true;
  if (!a.payload && a.landing) a.payload = link_->try_receive(a.handle);
  return a.payload != nullptr;
}

bool Messenger::move_arrivals() {
  bool moved = false;
  for (const Role to : {Role::worker, Role::server}) {
    for (int from = 0; from < link_->size(); ++from) {
      if (from == link_->rank()) continue;
      take_header(to, from);
      auto& coming = lines_[index(to)][static_cast<std::size_t>(from)].coming;
      for (Arrival* a : coming) {
        if (a->header.bytes > 0 && !a->landing && !land(*a)) break;
      }
      for (; !coming.empty() && has_come(*coming.front()); coming.pop_front(), moved = true) {
        const std::lock_guard lock(mutex_);
        deliver(*coming.front());
      }
    }
  }
  return moved;
}

void Messenger::release(Arrival& a) {
  if (a.header.bytes > 0) link_->release(a.handle);
  if (a.buffer) free_buffers_[index(a.to)].push_back(a.buffer);
}

/// Of the poll: lets senders of messages that were read know. Were there any?
bool Messenger::release_all_read() {
  std::vector<Arrival*> read;
  {
    const std::lock_guard lock(mutex_);
    for (ReceiveQueue& in : receive_queues_) {
      read.insert(read.end(), in.read.begin(), in.read.end());
      in.read.clear();
    }
  }
  for (Arrival* a : read) release(*a);
  const std::lock_guard lock(mutex_);
  free_arrivals_.insert(free_arrivals_.end(), read.begin(), read.end());
  return !read.empty();
}

void Messenger::release_read() {
  const std::lock_guard moving(moving_);
  release_all_read();
}

bool Messenger::poll() {
  const std::unique_lock moving(moving_, std::try_to_lock);
  if (!moving || paused_) return false;
  {
    const std::lock_guard lock(mutex_);
    for (auto& d : departing_) travelling_.push_back(std::move(d));
    departing_.clear();
  }
  const bool released = release_all_read();
  link_->progress();
  const bool left = move_departures();
  return move_arrivals() || left || released;
}

void Messenger::fail(std::exception_ptr e) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(e);
  for (ReceiveQueue& in : receive_queues_) in.changed.notify_all();
}

}  // namespace gradmeter::dataparallel
