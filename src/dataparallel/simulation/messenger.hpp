// Ports in virtual time.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "dataparallel/simulation/context.hpp"

namespace gradmeter::dataparallel {

/// What the ports of one `open` share.
struct PortSet {
  PortOptions options = {};
  std::vector<int> members = {};                        ///< workers in rank order
  std::deque<MessageQueue> workers = {}, servers = {};  ///< by rank in the group
  std::set<std::pair<Role, int>> closed = {};           ///< ports that need nothing any more, where that matters
  std::deque<MessageQueue>& boxes(Role r) { return r == Role::worker ? workers : servers; }
};

class SimMessenger {
 public:
  explicit SimMessenger(SimContext& g) : g_(g) {}
  /// One worker's part of an `open`. It does not wait for the others: messages may arrive before a receiver opens.
  Ports open(Group, int worker, PortOptions);
  /// When the last message that this thread has posted leaves [s]; forgets it, since threads' numbers are reused.
  double take_last_send_end(int thread);

 private:
  class SimPort;
  std::shared_ptr<PortSet> make(Group, const PortOptions&);

  SimContext& g_;
  std::map<std::pair<int, int>, std::size_t> calls_;  ///< by group and worker
  std::map<std::pair<int, std::size_t>, std::shared_ptr<PortSet>> port_sets_;
  std::map<int, double> last_send_end_;
};

}  // namespace gradmeter::dataparallel
