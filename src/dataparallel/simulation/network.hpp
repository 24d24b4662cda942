// The ports of the ranks onto the link. A rank sends one message at a time, in the order of posting, and takes in one
// at a time, in the order in which their first bytes come. Collectives have transports of their own and share neither.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "allreduce/schedule/hockney.hpp"
#include "dataparallel/message.hpp"
#include "dataparallel/simulation/event_scheduler.hpp"

namespace gradmeter::dataparallel {

/// What travels.
struct Packet {
  int from = 0;               ///< rank of everybody
  std::uint64_t number = 0;   ///< of all that were ever posted: breaks ties, so that runs repeat
  double head = 0, tail = 0;  ///< when its first and its last byte are there, if the port is free
  double port_time_s = 0;     ///< what it takes the port
  bool is_failure_notice = false;
  MessageHeader header = {};
  std::shared_ptr<const std::vector<std::byte>> payload = {};
};

/// Where parcels for one reader end.
struct MessageQueue {
  explicit MessageQueue(int rank) : owner(rank) {}
  const int owner;  ///< rank of everybody
  /// By the time at which they are there: known for good, though it may lie ahead.
  std::map<std::tuple<double, int, std::uint64_t>, Packet> arrivals;
  int reader = -1;  ///< thread that sleeps until something comes; -1: none
};

/// Only the holder of the baton may call. Source of the cost: Hockney, with both ports of a rank serialised.
class SimNetwork {
 public:
  SimNetwork(int ranks, allreduce::LinkModel link, EventScheduler& scheduler)
      : link_(link),
        scheduler_(scheduler),
        outgoing_free_(static_cast<std::size_t>(ranks)),
        incoming_(outgoing_free_.size()) {}

  struct Sending {
    double begin = 0, left = 0;  ///< when the sender's port took it, and when it is free again [s]
  };
  /// The sender's part.
  Sending send(int from, std::size_t bytes);
  /// A message that was sent so comes to this box, `delay` later than it could.
  void deliver(MessageQueue&, Packet, Sending, double delay = 0);
  /// Something that comes by itself at a time, behind what came before it.
  void deliver_at(MessageQueue&, Packet, double time);
  /// Without the link: is there now.
  void put(MessageQueue&, Packet);

  /// The arrival times of all whose first byte is there are known for good: nothing can come before them any more.
  void settle(MessageQueue&);
  /// When the box's first parcel will be there, as far as it is known today [s]; `forever`: none is on its way.
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

  allreduce::LinkModel link_;
  EventScheduler& scheduler_;
  std::uint64_t posted_ = 0;
  std::vector<double> outgoing_free_;  ///< by rank
  std::vector<Port> incoming_;
};

}  // namespace gradmeter::dataparallel
