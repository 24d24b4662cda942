// SPDX-License-Identifier: Apache-2.0
// The state that all parts of the simulation share: the machine, the scheduler, the network, the groups, and the times
// at which ranks fail. Only the running thread touches it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "core/machine.hpp"
#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/fabric/simulation/event_scheduler.hpp"
#include "dataparallel/fabric/simulation/world.hpp"

namespace gradmeter::dataparallel {

struct MessageQueue;

/// A message on the network.
struct Packet {
  int from = 0;                   ///< rank in the world
  std::uint64_t number = 0;       ///< number among all packets; orders packets of the same time and sender
  double head = 0, tail = 0;      ///< when its first and its last byte would arrive if the receiver's port were free
  double port_time_s = 0;         ///< how long it occupies the receiver's port
  MessageQueue* queue = nullptr;  ///< the queue in which it arrives
  bool is_failure_notice = false;
  MessageHeader header = {};
  std::shared_ptr<const std::vector<std::byte>> payload = {};
};

/// The queue in which packets for one reader arrive.
struct MessageQueue {
  explicit MessageQueue(int rank) : owner(rank) {}
  const int owner;  ///< rank in the world
  /// Packets whose arrival time is fixed, though it may lie in the future; by arrival time, sender and number.
  std::map<std::tuple<double, int, std::uint64_t>, Packet> arrivals;
  int reader = -1;  ///< the thread that sleeps until a packet comes; -1: none
};

/// The ranks' network ports, for messages; collectives do not use them. A rank sends one message at a time, in the
/// order of posting, and receives one message at a time, in the order in which the first bytes arrive. Only the running
/// thread may use it. Source of the cost: Hockney's model; besides, the ranks of a node share the node's port, and all
/// nodes share the trunk between them (`core::LinksInUse`).
class SimNetwork {
 public:
  SimNetwork(int ranks, const core::Machine& machine, EventScheduler& scheduler)
      : scheduler_(scheduler),
        links_(machine, std::vector<double>(static_cast<std::size_t>(ranks), 0.0)),
        incoming_(static_cast<std::size_t>(ranks)) {}

  using Passage = core::LinksInUse::Passage;
  /// Occupies the sender's port and the links for a message that is posted now. from, to: ranks in the world.
  Passage send(int from, int to, std::size_t bytes);
  /// The time at which the sender's port is free again [s].
  static double send_end(const Passage& p) { return p.begin + p.occupied_s; }
  /// Delivers a packet after the passage that `send` returned. delay: further time for an injected fault [s].
  void deliver(MessageQueue&, Packet, const Passage&, double delay = 0);
  /// Delivers a packet at this time (later if the owner's port is still busy), after all others of the same time and
  /// sender, without using the link.
  void deliver_at(MessageQueue&, Packet, double time);
  /// Delivers a packet now, without using the link.
  void put(MessageQueue&, Packet);

  /// Fixes the arrival times of packets whose first byte has arrived at the owner's port: no packet that is sent later
  /// can overtake these.
  void settle(MessageQueue&);
  /// The time at which the queue's first packet will arrive, by what is known now [s]; `forever`: none is on its way.
  double expected(const MessageQueue&) const;

 private:
  struct ReceiverPort {
    /// Packets on their way, by the time of their first byte.
    std::map<std::tuple<double, int, std::uint64_t>, Packet> coming;
    double free = 0;  ///< when the port becomes free [s]
  };
  void enqueue(MessageQueue&, Packet);
  static double arrival_time(const Packet&, double port_free);
  ReceiverPort& port(const MessageQueue& queue) { return incoming_[static_cast<std::size_t>(queue.owner)]; }

  EventScheduler& scheduler_;
  std::uint64_t posted_ = 0;  ///< number of packets so far
  core::LinksInUse links_;
  std::vector<ReceiverPort> incoming_;  ///< by rank in the world
};

// A call that is under way in virtual time.

class SimPendingCall : public PendingCall {
 public:
  /// Begins a call at the present time of the running thread.
  SimPendingCall(EventScheduler& scheduler, std::string label)
      : scheduler_(scheduler), thread_(scheduler.running_thread()), label_(std::move(label)) {
    completion_.posted = scheduler.now(thread_);
  }
  /// True if the call has finished by the clock of the thread that asks. (The thread that posted the call may be a
  /// background task that has ended.)
  bool done() const override {
    return has_finish_time_ && completion_.finished <= scheduler_.now(scheduler_.running_thread());
  }
  const Completion& completion() const override {
    if (!has_finish_time_) throw std::logic_error("a call's completion was asked for before it was done");
    return completion_;
  }
  std::string_view label() const override { return label_; }
  bool has_finish_time() const { return has_finish_time_; }
  double posted() const { return completion_.posted; }
  int thread() const { return thread_; }

  /// Completes the call. Its times may be in the future. Wakes the thread that waits for the call, if there is one.
  void finish(double started, double finished, std::uint64_t sent, std::uint64_t required) {
    completion_.started = started;
    completion_.finished = finished;
    completion_.bytes_sent = sent;
    completion_.bytes_required = required;
    has_finish_time_ = true;
    if (waited_for_) scheduler_.wake(thread_, finished);
  }
  virtual void wait() {
    while (!has_finish_time_) sleep(EventScheduler::forever);
    // Blocks until exactly the time `finished`. Advancing the clock by a rounded difference of times could end too
    // early, but the call must be done when `wait` returns.
    while (completion_.finished > scheduler_.now(thread_)) scheduler_.block(thread_, label_, completion_.finished);
  }

 protected:
  void sleep(double until) {
    waited_for_ = true;
    scheduler_.block(thread_, label_, until);
    waited_for_ = false;
  }
  EventScheduler& scheduler_;

 private:
  int thread_;
  std::string label_;
  Completion completion_;
  bool has_finish_time_ = false, waited_for_ = false;
};
using SimTicket = std::shared_ptr<SimPendingCall>;

class Groups {
 public:
  Groups(int workers, EventScheduler&);
  /// The members of a group: their ranks in the world, by rank in the group.
  const std::vector<int>& members(Group g) const { return members_.at(static_cast<std::size_t>(g.id)); }
  int size(Group g) const { return static_cast<int>(members(g).size()); }
  /// Converts a rank in the world to its rank in the group. Errors: std::logic_error if it is not in the group.
  int position(Group, int world_rank) const;
  /// Converts a rank in the group to its rank in the world. Errors: std::logic_error if the group has no such rank.
  int world_rank(Group, int rank) const;
  /// Makes one rank's call of `split`; returns when all ranks have called.
  Group split(int world_rank, int color, int key);

 private:
  /// One collective call of `split`.
  struct Splitting {
    std::vector<std::tuple<int, int, int>> asked;  ///< colour, key, rank in the world of each call
    std::map<int, int> group_of_color;
  };
  void form(Splitting&);  ///< makes the groups, when all ranks have called
  EventScheduler& scheduler_;
  std::vector<std::vector<int>> members_;  ///< by group id
  std::vector<Splitting> splits_;
  std::vector<std::size_t> calls_;  ///< number of calls of `split`, by rank in the world
};

struct SimContext {
  SimContext(int workers, SimMachine);
  /// The time at which this rank in the world fails; `EventScheduler::forever`: never.
  double fails_at(int rank) const { return failure_times[static_cast<std::size_t>(rank)]; }
  const core::Machine& machine() const { return sim_machine.machine; }
  double now() const { return scheduler.now(scheduler.running_thread()); }

  SimMachine sim_machine;
  EventScheduler scheduler;
  SimNetwork network;
  Groups groups;
  std::vector<double> failure_times;
  std::vector<double> cores_free;  ///< when each shared core becomes free [s]
};

}  // namespace gradmeter::dataparallel
