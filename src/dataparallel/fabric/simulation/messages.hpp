// SPDX-License-Identifier: Apache-2.0
// Messages in virtual time: sends and receives of a fabric, and ports.
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
  /// peer: rank in the group.
  Ticket send(Group, int worker, int peer, ConstBuffer);
  Ticket receive(Group, int worker, int peer, Buffer);

 private:
  class Receiving;
  /// The messages of one (group, source, destination), in order.
  struct Channel {
    explicit Channel(int to) : queue(to) {}
    MessageQueue queue;
    std::deque<std::pair<std::shared_ptr<Receiving>, Buffer>> receiving;
  };
  Channel& channel(Group, int from, int to);
  void match(Channel&);

  SimContext& context_;
  std::map<std::tuple<int, int, int>, Channel> channels_;  ///< by group and the two workers
};

/// The state that the ports of one `open` share.
struct PortSet {
  PortOptions options = {};
  std::vector<int> members = {};                        ///< workers in rank order
  std::deque<MessageQueue> workers = {}, servers = {};  ///< by rank in the group
  /// Ports that are no longer needed, recorded where messages may get lost.
  std::set<std::pair<Role, int>> closed = {};
  std::deque<MessageQueue>& queues(Role r) { return r == Role::worker ? workers : servers; }
};

/// Opens ports and times their messages.
class SimMessenger {
 public:
  explicit SimMessenger(SimContext& context) : context_(context) {}
  /// Makes the `open` call of one worker. It does not wait for the others, since messages may arrive before a receiver
  /// opens.
  Ports open(Group, int worker, PortOptions);
  /// The time at which the last message that this thread has posted leaves [s]. The entry is erased, since numbers of
  /// threads are reused.
  double take_last_send_end(int thread);

 private:
  class SimPort;
  std::shared_ptr<PortSet> make(Group, const PortOptions&);

  SimContext& context_;
  std::map<std::pair<int, int>, std::size_t> calls_;  ///< by group and worker
  std::map<std::pair<int, std::size_t>, std::shared_ptr<PortSet>> port_sets_;
  std::map<int, double> last_send_end_;
};

}  // namespace gradmeter::dataparallel
