#include "dataparallel/ranks/messenger.hpp"

#include <chrono>
#include <thread>

#include "runtime/time/clock.hpp"
#include "runtime/transport/doorbell.hpp"

namespace gradmeter::dataparallel {

class Messenger::MessengerPort final : public Port {
 public:
  MessengerPort(Messenger& messenger, Role role)
      : messenger_(messenger), role_(role), in_(messenger.receive_queues_[role]), backoff_(messenger.spin_policy_) {}
  ~MessengerPort() override { MessengerPort::close(); }
  MessengerPort(const MessengerPort&) = delete;
  MessengerPort& operator=(const MessengerPort&) = delete;

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    const std::lock_guard lock(messenger_.mutex_);
    const auto room = messenger_.departures_.draft(role_, to, bytes);
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
  void attend(bool yes) override {
    const std::lock_guard lock(messenger_.mutex_);
    attend_locked(yes);
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
    const Arrival& a = in_.reading.emplace(std::move(in_.arrived.front()));
    in_.arrived.pop_front();
    return Message{.from = a.from, .header = a.header, .payload = {a.payload, a.header.bytes}};
  }

 private:
  void attend_locked(bool yes) {
    attending_ += yes ? 1 : -1;
    messenger_.worker_polls(attending_ > 0, attending_ > 0 && helper_);
  }

  /// A worker moves messages itself, since it has nothing else to do. A server sleeps until it is told: it may share a
  /// core with a worker that computes.
  void wait(std::unique_lock<std::mutex>& lock, const runtime::WaitInfo& note, double deadline) {
    // Noted again and again, because whichever thread moves bytes clears notes. A server waits most of the time, for no
    // particular rank, which would explain no hang.
    constexpr double renewal_s = 0.1;
    double noted = -renewal_s, now;
    if (role_ == Role::worker) attend_locked(true);
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
    attend_locked(false);
    messenger_.activity_.wait_ended();
  }

  Messenger& messenger_;
  const Role role_;
  ReceiveQueue& in_;
  runtime::Backoff backoff_;
  std::function<bool()> helper_;
  int attending_ = 0;  ///< begun, and not ended
};

Messenger::Messenger(runtime::OwnedTransport link, runtime::Arena& arena, const PortOptions& o,
                     runtime::Activity& activity, const std::vector<int>& world_ranks, runtime::SpinPolicy spin_policy)
    : in_flight_(o.in_flight),
      spin_policy_(spin_policy),
      activity_(activity),
      world_ranks_(world_ranks),
      arrivals_(*link, o),
      departures_(*link, arena, o),
      link_(std::move(link)),
      doorbell_(link_->use_doorbell()) {}

std::unique_ptr<Port> Messenger::port(Role r) { return std::make_unique<MessengerPort>(*this, r); }

/// Null: there is no room.
Ticket Messenger::post(Role from, int to, const MessageHeader& header, std::span<const std::byte> payload,
                       const char* label) {
  std::unique_lock lock(mutex_);
  Departure d = departures_.prepare(from, to, header, payload, label);
  Ticket t = d.ticket;
  if (!t) return receive_queues_[from].room_wanted = true, nullptr;
  if (to == link_->rank()) {
    const std::byte* const at =
        header.payload_place > 0 ? link_->peer_memory(to, header.payload_place - 1) : d.payload.data();
    Arrival own{.from = to, .to = opposite(from), .header = header, .payload = at};
    own.own = std::move(d);
    deliver(std::move(own));
  } else {
    departures_.post(std::move(d));
  }
  lock.unlock();
  poll();
  return t;
}

void Messenger::deliver(Arrival a) {
  ReceiveQueue& in = receive_queues_[a.to];
  in.arrived.push_back(std::move(a));
  if (!in.helped) in.changed.notify_one();
}

/// While a worker polls nobody need wake the engine's thread, and while it takes the server's messages too (`helps`)
/// nobody the server's.
void Messenger::worker_polls(bool yes, bool helps) {
  worker_polls_ = yes;
  if (dozes_) doorbell_->arm(!yes);
  ReceiveQueue& of_server = receive_queues_[Role::server];
  of_server.helped = helps;
  if (!yes && of_server.has_news()) of_server.changed.notify_one();
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

void Messenger::wake() {
  if (doorbell_) doorbell_->wake();
}

void Messenger::pause(bool yes) {
  const std::lock_guard moving(moving_);
  paused_ = yes;
}

/// After a message was read: what the own rank sent may change at once, another's at the next poll.
void Messenger::give_back(std::optional<Arrival> a) {
  if (a && a->own.ticket) return finish(a->own);
  if (a) read_.push_back(std::move(*a));
}

void Messenger::finish(const Departure& d) {
  departures_.finish(d);
  ReceiveQueue& sender = receive_queues_[d.from];
  sender.room = sender.room_wanted;
  if (sender.room && !sender.helped) sender.changed.notify_one();
}

/// Of the poll: takes what was posted, and lets senders of messages that were read know. Were there any of these?
bool Messenger::take_over() {
  std::vector<Arrival> read;
  {
    const std::lock_guard lock(mutex_);
    departures_.take_posted();
    read.swap(read_);
  }
  for (Arrival& a : read) arrivals_.release(a);
  return !read.empty();
}

bool Messenger::poll() {
  const std::unique_lock moving(moving_, std::try_to_lock);
  if (!moving || paused_) return false;
  const bool released = take_over();
  link_->progress();
  const bool left = departures_.move([this](const Departure& d) {
    const std::lock_guard lock(mutex_);
    finish(d);
  });
  const bool came = arrivals_.move([this](Arrival& a) {
    const std::lock_guard lock(mutex_);
    deliver(std::move(a));
  });
  return left || came || released;
}

void Messenger::fail(std::exception_ptr e) {
  const std::lock_guard lock(mutex_);
  for (ReceiveQueue& in : receive_queues_.all) {
    if (!in.error) in.error = e, in.changed.notify_all();
  }
}

}  // namespace gradmeter::dataparallel
