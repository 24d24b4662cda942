#include "dataparallel/ranks/messenger.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t header_bytes = sizeof(MessageHeader);
/// One message can land while the one before it is read.
constexpr int landings_each = 2;

}  // namespace

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
  MessengerPort(Messenger& messenger, Role role) : messenger_(messenger), role_(role) {}
  ~MessengerPort() override {
    const std::lock_guard lock(messenger_.mutex_);
    messenger_.give_back(messenger_.receive_queue(role_));
  }
  MessengerPort(const MessengerPort&) = delete;
  MessengerPort& operator=(const MessengerPort&) = delete;

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    if (bytes > messenger_.options_.payload_bytes) {
      throw std::logic_error(fmt::format("a message of {} bytes was drafted where {} is the most", bytes,
                                         messenger_.options_.payload_bytes));
    }
    const std::lock_guard lock(messenger_.mutex_);
    Lane& lane = messenger_.lane(role_, to);
    const auto slot = std::find_if(lane.slots.begin(), lane.slots.end(), [](const Slot& s) { return !s.taken; });
    if (slot == lane.slots.end()) {
      messenger_.receive_queue(role_).room_wanted = true;
      return std::nullopt;
    }
    lane.drafted = static_cast<std::size_t>(slot - lane.slots.begin());
    return slot->memory.subspan(header_bytes, bytes);
  }

  Ticket post(int to, const MessageHeader& header, const char* label) override {
    auto ticket = std::make_shared<OutgoingMessage>(label, header.bytes);
    const std::lock_guard lock(messenger_.mutex_);
    Slot& slot = messenger_.lane(role_, to).slots[messenger_.lane(role_, to).drafted];
    std::memcpy(slot.memory.data(), &header, header_bytes);
    slot.taken = true;
    if (to == messenger_.link_->rank()) {
      messenger_.deliver_to_self(ticket, slot, role_);
    } else {
      ++messenger_.unsent_;
      messenger_.departing_.push_back({ticket, &slot, to, role_, header_bytes + header.bytes});
    }
    return ticket;
  }

  std::optional<Message> next(const char* why, double deadline, int of) override {
    std::unique_lock lock(messenger_.mutex_);
    ReceiveQueue& in = messenger_.receive_queue(role_);
    messenger_.give_back(in);
    const auto something = [&] { return messenger_.error_ || !in.arrived.empty() || in.room; };
    if (!something() && deadline > runtime::host_clock()) {
      wait(lock, in, {.operation = why, .peer = of < 0 ? -1 : messenger_.world_ranks_.at(static_cast<std::size_t>(of))},
           deadline, something);
    }
    if (messenger_.error_) std::rethrow_exception(messenger_.error_);
    in.room = in.room_wanted = false;
    if (in.arrived.empty()) return std::nullopt;
    in.reading = in.arrived.front();
    in.arrived.pop_front();
    Message message{.from = in.reading->from};
    std::memcpy(&message.header, in.reading->at, header_bytes);
    message.payload = {in.reading->at + header_bytes, static_cast<std::size_t>(message.header.bytes)};
    return message;
  }

 private:
  template <class Something>
  void wait(std::unique_lock<std::mutex>& lock, ReceiveQueue& in, const runtime::WaitInfo& note, double deadline,
            Something something) {
    // Noted again and again, because whichever thread moves bytes clears notes. A server waits most of the time, for no
    // particular rank, which would explain no hang.
    constexpr double renewal_s = 0.1;
    double left;
    do {
      if (role_ == Role::worker) messenger_.activity_.waiting(note);
      left = std::min(renewal_s, deadline - runtime::host_clock());
    } while (!in.changed.wait_for(lock, std::chrono::duration<double>(left), something) && left >= renewal_s);
    if (role_ == Role::worker) messenger_.activity_.wait_ended();
  }

  Messenger& messenger_;
  Role role_;
};

Messenger::Messenger(runtime::OwnedTransport link, runtime::Arena& arena, const PortOptions& o,
                     runtime::Activity& activity, const std::vector<int>& world_ranks)
    : link_(std::move(link)), options_(o), activity_(activity), world_ranks_(world_ranks) {
  for (auto& of_role : listening_) of_role.resize(static_cast<std::size_t>(link_->size()));
  for (auto& lanes : lanes_) {
    lanes.resize(static_cast<std::size_t>(link_->size()));
    for (Lane& lane : lanes) {
      for (int i = 0; i < o.in_flight; ++i) lane.slots.push_back({arena.take(slot_bytes(o)), false});
    }
  }
  for (const Role to : {Role::worker, Role::server}) {
    for (int from = 0; from < link_->size(); ++from) {
      for (int i = 0; from != link_->rank() && i < landings_each; ++i) {
        Landing& l = landings_.emplace_back();
        l.from = from;
        l.to = to;
        if (!link_->zero_copy_from(from)) l.memory.resize(slot_bytes(o));
        listen(l);
      }
    }
  }
}

std::unique_ptr<Port> Messenger::port(Role r) { return std::make_unique<MessengerPort>(*this, r); }

void Messenger::listen(Landing& l) {
  l.at = nullptr;
  l.ticket = link_->receive(l.from, static_cast<int>(l.to), l.memory);
  listening_[index(l.to)][static_cast<std::size_t>(l.from)].push_back(&l);
}

void Messenger::deliver_to_self(const std::shared_ptr<OutgoingMessage>& ticket, Slot& slot, Role from) {
  auto place = std::find_if(own_.begin(), own_.end(), [](const Landing& l) { return l.at == nullptr; });
  if (place == own_.end()) place = own_.emplace(own_.end());
  ticket->stamps.started = ticket->stamps.posted;
  ticket->stamps.bytes_sent = 0;
  ticket->stamps.bytes_due = 0;
  place->from = link_->rank();
  place->to = other(from);
  place->at = slot.memory.data();
  place->own = &slot;
  place->own_ticket = ticket;
  receive_queue(place->to).arrived.push_back(&*place);
  receive_queue(place->to).changed.notify_one();
}

/// After a message was read: the own rank's slot is free at once, another's landing buffer at the engine's next poll.
void Messenger::give_back(ReceiveQueue& in) {
  Landing* l = std::exchange(in.reading, nullptr);
  if (!l) return;
  if (!l->own) return in.read.push_back(l);
  l->own_ticket->finish();
  l->own_ticket.reset();
  free_slot(other(l->to), *l->own);
  l->own = nullptr;
  l->at = nullptr;
}

void Messenger::free_slot(Role from, Slot& slot) {
  slot.taken = false;
  ReceiveQueue& sender = receive_queue(from);
  if (!sender.room_wanted) return;
  sender.room = true;
  sender.changed.notify_one();
}

void Messenger::depart(Departure& d) {
  d.ticket->stamps.started = runtime::host_clock();
  const runtime::Traffic before = link_->traffic();
  d.sent = link_->send(d.to, static_cast<int>(other(d.from)), d.slot->memory.first(d.bytes));
  const auto sent = link_->traffic() - before;
  if (sent.bytes_between_nodes > 0) d.ticket->stamps.bytes_between_nodes = d.bytes - header_bytes;
  d.started = true;
  if (link_->zero_copy_from(d.to)) --unsent_;  // the receiver reads it by itself
}

bool Messenger::move_departures() {
  bool moved = false;
  for (std::size_t i = 0; i < travelling_.size();) {
    Departure& d = travelling_[i];
    if (!d.started) depart(d), moved = true;
    if (!link_->send_done(d.sent)) {
      ++i;
      continue;
    }
    if (!link_->zero_copy_from(d.to)) --unsent_;
    d.ticket->finish();
    {
      const std::lock_guard lock(mutex_);
      free_slot(d.from, *d.slot);
    }
    travelling_.erase(travelling_.begin() + static_cast<std::ptrdiff_t>(i));
    moved = true;
  }
  return moved;
}

bool Messenger::move_arrivals() {
  bool moved = false;
  for (auto& of_role : listening_) {
    for (auto& line : of_role) {
      while (!line.empty()) {
        Landing& l = *line.front();
        const std::byte* at = link_->try_receive(l.ticket);
        if (!at) break;
        line.pop_front();
        const std::lock_guard lock(mutex_);
        l.at = at;
        receive_queue(l.to).arrived.push_back(&l);
        receive_queue(l.to).changed.notify_one();
        moved = true;
      }
    }
  }
  return moved;
}

bool Messenger::poll() {
  std::vector<Landing*> read;
  {
    const std::lock_guard lock(mutex_);
    for (auto& d : departing_) travelling_.push_back(std::move(d));
    departing_.clear();
    for (ReceiveQueue& in : receive_queues_) {
      read.insert(read.end(), in.read.begin(), in.read.end());
      in.read.clear();
    }
  }
  for (Landing* l : read) {
    link_->release(l->ticket);
    listen(*l);
  }
  link_->progress();
  const bool left = move_departures();
  return move_arrivals() || left || !read.empty();
}

void Messenger::fail(std::exception_ptr e) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(e);
  for (ReceiveQueue& in : receive_queues_) in.changed.notify_all();
}

}  // namespace gradmeter::dataparallel
