// SPDX-License-Identifier: Apache-2.0
// Messages in virtual time: the sends and receives of a fabric, and the messages of ports.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "dataparallel/fabric/simulation/context.hpp"

namespace gradmeter::dataparallel {

/// The sends and receives of a fabric.
class PointToPoint {
 public:
  explicit PointToPoint(SimContext& context) : context_(context) {}
  /// world_rank: the caller's rank in the world. peer: rank in the group.
  Ticket send(Group, int world_rank, int peer, ConstBuffer);
  Ticket receive(Group, int world_rank, int peer, Buffer);

 private:
  class Receiving;
  /// The messages of one (group, source, destination), in order.
  struct Channel {
    explicit Channel(int to) : queue(to) {}
    MessageQueue queue;
    std::deque<std::pair<std::shared_ptr<Receiving>, Buffer>> receiving;  ///< receives without a message so far
  };
  Channel& channel(Group, int from, int to);
  void match(Channel&);

  SimContext& context_;
  std::map<std::tuple<int, int, int>, Channel> channels_;  ///< by group, sender and receiver
};

/// The state that the ports of one collective `open` share.
struct PortSet {
  PortOptions options = {};
  std::vector<int> members = {};                                    ///< ranks in the world, by rank in the group
  std::deque<MessageQueue> worker_queues = {}, server_queues = {};  ///< by rank in the group
  /// Ports that were closed, and ports of ranks that died. Both are recorded only if messages may get lost.
  std::set<std::pair<Role, int>> closed = {};
  std::deque<MessageQueue>& queues(Role r) { return r == Role::worker ? worker_queues : server_queues; }
};

/// Opens ports and times their messages.
class SimMessenger {
 public:
  explicit SimMessenger(SimContext& context) : context_(context) {}
  /// Makes one rank's call of `open`. It does not wait for the other ranks, since messages may arrive before their
  /// receiver has called.
  Ports open(Group, int world_rank, PortOptions);
  /// Returns the time at which the last message that this thread has posted leaves [s]; 0: it has posted none. Forgets
  /// this time, since a later run gives the thread's number to another thread.
  double take_last_send_end(int thread);

 private:
  class SimPort;
  std::shared_ptr<PortSet> make(Group, const PortOptions&);

  SimContext& context_;
  std::map<std::pair<int, int>, std::size_t> calls_;  ///< number of calls of `open`, by group and rank in the world
  std::map<std::pair<int, std::size_t>, std::shared_ptr<PortSet>> port_sets_;  ///< by group and number of the call
  std::map<int, double> last_send_end_;                                        ///< by thread [s]
};

}  // namespace gradmeter::dataparallel
