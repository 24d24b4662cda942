// What all parts of the simulation share: the machine, the scheduler, the network, the groups, and which ranks die
// when. Only the running thread touches it.
#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/simulation/machine.hpp"
#include "dataparallel/simulation/network.hpp"

namespace gradmeter::dataparallel {

class Groups {
 public:
  Groups(int workers, EventScheduler&);
  /// Workers in rank order.
  const std::vector<int>& members(Group g) const { return members_.at(static_cast<std::size_t>(g.id)); }
  int size(Group g) const { return static_cast<int>(members(g).size()); }
  /// Rank of a worker in a group. Errors: std::logic_error when it is not in it.
  int position(Group, int worker) const;
  /// The world rank of this rank of the group. Errors: std::logic_error when there is none.
  int worker(Group, int rank) const;
  /// One worker's call; returns when all have called.
  Group split(int worker, int color, int key);

 private:
  struct Splitting {
    std::vector<std::tuple<int, int, int>> asked;  ///< color, key, worker
    std::map<int, int> group_of_color;
  };
  void form(Splitting&);
  EventScheduler& scheduler_;
  std::vector<std::vector<int>> members_;  ///< by group id
  std::vector<Splitting> splits_;
  std::vector<std::size_t> calls_;  ///< by worker
};

struct SimContext {
  SimContext(int workers, SimMachine);
  /// When that rank of the world dies; for most `EventScheduler::forever`.
  double fails_at(int rank) const { return failure_times[static_cast<std::size_t>(rank)]; }
  const core::Machine& machine() const { return simulated.machine; }
  double now() const { return scheduler.now(scheduler.running_thread()); }

  SimMachine simulated;
  EventScheduler scheduler;
  SimNetwork network;
  Groups groups;
  std::vector<double> failure_times;
};

}  // namespace gradmeter::dataparallel
