// The ranks' network ports. A rank sends one message at a time, in the order of posting, and receives one at a time, in
// the order in which their first bytes arrive. Collectives have transports of their own and share neither port.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "core/links_in_use.hpp"
#include "dataparallel/message.hpp"
#include "dataparallel/simulation/event_scheduler.hpp"

namespace gradmeter::dataparallel {

/// A message on the network.
struct Packet {
  int from = 0;               ///< rank in the world
  std::uint64_t number = 0;   ///< of all packets so far: breaks ties, so that runs repeat
  double head = 0, tail = 0;  ///< when its first and its last byte arrive, if the port is free
  double port_time_s = 0;     ///< how long it occupies the port
  bool is_failure_notice = false;
  MessageHeader header = {};
  std::shared_ptr<const std::vector<std::byte>> payload = {};
};

/// Where packets for one reader arrive.
struct MessageQueue {
  explicit MessageQueue(int rank) : owner(rank) {}
  const int owner;  ///< rank in the world
  /// By arrival time: final, though it may be in the future.
  std::map<std::tuple<double, int, std::uint64_t>, Packet> arrivals;
  int reader = -1;  ///< thread that sleeps until a packet comes; -1: none
};

/// Only the running thread may call. Source of the cost: Hockney, with both ports of a rank serialised, and nodes'
/// ports and the trunk shared (`core::LinksInUse`).
class SimNetwork {
 public:
  SimNetwork(int ranks, const core::Machine& machine, EventScheduler& scheduler)
      : scheduler_(scheduler),
        links_(machine, std::vector<double>(static_cast<std::size_t>(ranks), 0.0)),
        incoming_(static_cast<std::size_t>(ranks)) {}

  struct Sending {
    double begin = 0, left = 0;  ///< when the sender's port begins it, and when the port is free again [s]
    double latency_s = 0;
  };
  /// The sender's part. from, to: ranks in the world.
  Sending send(int from, int to, std::size_t bytes);
  /// Delivers a message that was sent so to this queue, `delay` later than without a fault.
  void deliver(MessageQueue&, Packet, Sending, double delay = 0);
  /// Delivers a packet at a given time, without the link, after all others of that time.
  void deliver_at(MessageQueue&, Packet, double time);
  /// Delivers a packet now, without the link.
  void put(MessageQueue&, Packet);

  /// Makes final the arrival times of packets whose first byte has arrived: no other can come before them any more.
  void settle(MessageQueue&);
  /// When the queue's first packet will arrive, as far as it is known now [s]; `forever`: none is on its way.
  double expected(const MessageQueue&) const;

 private:
  struct Coming {
    Packet packet;
    MessageQueue* box = nullptr;
  };
  struct Port {
    std::map<std::tuple<double, int, std::uint64_t>, Coming> coming;  ///< by head
    double free = 0;
  };
  void enqueue(MessageQueue&, Packet);
  static double end_of(const Packet&, double port_free);
  Port& port(const MessageQueue& b) { return incoming_[static_cast<std::size_t>(b.owner)]; }

  EventScheduler& scheduler_;
  std::uint64_t posted_ = 0;
  core::LinksInUse links_;
  std::vector<Port> incoming_;
};

}  // namespace gradmeter::dataparallel
