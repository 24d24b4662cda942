// What all parts of the virtual world stand on: the machine, the baton, the wire, the groups, and who dies when.
// Touched only by the thread that holds the baton.
#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/virtual/machine.hpp"
#include "dataparallel/virtual/wire.hpp"

namespace gradmeter::dataparallel {

class Groups {
 public:
  Groups(int workers, Baton&);
  /// Workers in rank order.
  const std::vector<int>& members(Group g) const { return members_.at(static_cast<std::size_t>(g.id)); }
  int size(Group g) const { return static_cast<int>(members(g).size()); }
  /// Rank of a worker in a group. Errors: std::logic_error when it is not in it.
  int position(Group, int worker) const;
  /// Rank of everybody that has this rank in the group. Errors: std::logic_error when there is none.
  int worker(Group, int rank) const;
  /// One worker's part; returns when all have asked.
  Group split(int worker, int color, int key);

 private:
  struct Splitting {
    std::vector<std::tuple<int, int, int>> asked;  ///< color, key, worker
    std::map<int, int> group_of_color;
  };
  void form(Splitting&);
  Baton& baton_;
  std::vector<std::vector<int>> members_;  ///< by group id
  std::vector<Splitting> splits_;
  std::vector<std::size_t> calls_;  ///< by worker
};

struct Ground {
  Ground(int workers, VirtualMachine);
  /// When that rank of everybody dies; for most `Baton::forever`.
  double dies_at(int rank) const { return dies[static_cast<std::size_t>(rank)]; }
  double now() const { return baton.now(baton.holder()); }

  VirtualMachine machine;
  Baton baton;
  Wire wire;
  Groups groups;
  std::vector<double> dies;
};

}  // namespace gradmeter::dataparallel
