// Messages over real ranks: both ports of a rank, their slots and landing buffers, and the polling that moves messages.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <vector>

#include "dataparallel/message.hpp"
#include "dataparallel/ranks/engine.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::dataparallel {

/// Tasks write and read through ports under a mutex; the engine's thread moves bytes by `poll`. So only one thread
/// calls MPI, and a sender never waits for a receiver that is busy computing.
class Messenger final : public Pollable {
 public:
  /// The transport has a channel for each role. Slots (messages that wait to leave) are taken from the arena
  /// (`port_memory_bytes`), landing buffers are private. `activity`: where workers note what they wait for, with the
  /// member's rank in the world.
  Messenger(runtime::OwnedTransport, runtime::Arena&, const PortOptions&, runtime::Activity&,
            const std::vector<int>& world_ranks);

  bool poll() override;
  bool idle() const override { return unsent_.load(std::memory_order_acquire) == 0; }
  /// Every task that waits for a message gets this error.
  void fail(std::exception_ptr) override;
  std::unique_ptr<Port> port(Role);

 private:
  class MessengerPort;
  class OutgoingMessage;
  /// The memory of one message that is written, waits to leave, or travels.
  struct Slot {
    std::span<std::byte> memory;
    bool taken = false;
  };
  /// To one receiver, from one port.
  struct Lane {
    std::vector<Slot> slots;
    std::size_t drafted = 0;
  };
  struct Departure {
    std::shared_ptr<OutgoingMessage> ticket;
    Slot* slot;
    int to;
    Role from;
    std::size_t bytes;
    runtime::MessageHandle sent = {};
    bool started = false;
  };
  /// Where one message lands; it stays there until its reader is done with it.
  struct Landing {
    int from = 0;
    Role to = Role::worker;
    std::vector<std::byte> memory;
    runtime::MessageHandle ticket = {};
    const std::byte* at = nullptr;                ///< not null: the received message
    Slot* own = nullptr;                          ///< of a message to the own rank: the sender's slot
    std::shared_ptr<OutgoingMessage> own_ticket;  ///< of the same
  };
  struct ReceiveQueue {
    std::deque<Landing*> arrived;
    Landing* reading = nullptr;
    std::vector<Landing*> read;  ///< for the engine to post again
    bool room_wanted = false, room = false;
    std::condition_variable changed;
  };

  Lane& lane(Role from, int to) { return lanes_[index(from)][static_cast<std::size_t>(to)]; }
  ReceiveQueue& receive_queue(Role of) { return receive_queues_[index(of)]; }
  static std::size_t index(Role r) { return static_cast<std::size_t>(r); }
  static Role other(Role r) { return r == Role::worker ? Role::server : Role::worker; }
  void listen(Landing&);
  void depart(Departure&);
  bool move_departures();
  bool move_arrivals();
  void free_slot(Role from, Slot&);
  void deliver_to_self(const std::shared_ptr<OutgoingMessage>&, Slot&, Role from);
  void give_back(ReceiveQueue&);

  runtime::OwnedTransport link_;
  PortOptions options_;
  runtime::Activity& activity_;
  const std::vector<int>& world_ranks_;
  std::array<std::vector<Lane>, 2> lanes_;  ///< by role of the sender, by receiver
  std::deque<Landing> landings_;            ///< of both roles, from every other rank
  /// By role of the reader, by sender: landings in the order in which they will be filled. The engine's own.
  std::array<std::vector<std::deque<Landing*>>, 2> listening_;
  std::deque<Landing> own_;  ///< messages to the own rank; reused

  std::mutex mutex_;
  std::array<ReceiveQueue, 2> receive_queues_;  ///< by role of the reader
  std::atomic<int> unsent_{0};                  ///< posted, and still needing this process to leave
  std::vector<Departure> departing_;            ///< posted, not yet seen by the engine
  std::exception_ptr error_;
  std::deque<Departure> travelling_;  ///< the engine's own
};

}  // namespace gradmeter::dataparallel
