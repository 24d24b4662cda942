// What leaves the ports of a rank: memory for headers and drafts, and messages until they have left.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <stdexcept>
#include <utility>
#include <vector>

#include "dataparallel/message.hpp"
#include "runtime/time/clock.hpp"
#include "runtime/transport/arena.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::dataparallel {

/// One for each role.
template <class T>
struct ByRole {
  std::array<T, 2> all = {};
  T& operator[](Role r) { return all[static_cast<std::size_t>(r)]; }
};

// Header and payload are two messages of the transport, in channels of their own.
constexpr int header_channel(Role to) { return static_cast<int>(to); }
constexpr int payload_channel(Role to) { return 2 + static_cast<int>(to); }

/// A message's ticket. The thread that polls writes `stamps` until it is done.
class OutgoingMessage final : public Operation {
 public:
  OutgoingMessage(const char* label, double now, std::uint64_t bytes)
      : stamps{.posted = now, .started = now, .bytes_sent = bytes, .bytes_due = bytes}, label_(label) {}
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

struct Departure {
  std::shared_ptr<OutgoingMessage> ticket = {};
  Role from = Role::worker;
  int to = 0;
  std::span<std::byte> header = {}, draft = {};  ///< no draft: the payload lies in the sender's memory
  std::span<const std::byte> payload = {};
  runtime::MessageHandle header_sent = {}, payload_sent = {};
  bool started = false;
};

/// Of both ports. Memory: from the arena, headers for every rank and a few drafts (`port_memory_bytes`).
class Departures {
 public:
  Departures(runtime::Transport&, runtime::Arena&, const PortOptions&);
  bool idle() const { return unsent_.load(std::memory_order_acquire) == 0; }  ///< as Pollable's; any thread

  // Under the messenger's mutex.
  /// As Port's. A draft that was never posted is given again.
  std::optional<std::span<std::byte>> draft(Role from, int to, std::size_t bytes);
  /// A message with this payload or, where there is none, with the last draft to that rank. Without a ticket: no room.
  Departure prepare(Role from, int to, const MessageHeader&, std::span<const std::byte> payload, const char* label);
  void post(Departure);
  /// It has left: its memory is free.
  void finish(const Departure&);

  // Of the poll, the first under the mutex too.
  void take_posted();
  /// Starts what was posted, and calls `left` with each message that has left. Did anything move?
  bool move(const std::function<void(const Departure&)>& left);

 private:
  /// From one port to one receiver.
  struct Lane {
    std::vector<std::span<std::byte>> headers;  ///< that are free
    std::span<std::byte> draft;                 ///< asked for, and not yet posted
  };
  Lane& lane(Role from, int to) { return lanes_[from][static_cast<std::size_t>(to)]; }
  void check_length(std::size_t bytes) const;
  void start(Departure&);

  runtime::Transport& transport_;
  const std::size_t payload_bytes_;
  ByRole<std::vector<Lane>> lanes_;                   ///< of the sender, by receiver
  ByRole<std::vector<std::span<std::byte>>> drafts_;  ///< of the sender: free ones
  std::vector<Departure> posted_;                     ///< not yet seen by a poll
  std::deque<Departure> travelling_;                  ///< of the poll
  std::atomic<int> unsent_{0};
};

}  // namespace gradmeter::dataparallel
