// When messages leave on a machine whose links carry one at a time: each rank's way out, each node's port in both
// directions, and the trunk between nodes.
#pragma once
#include <cstdint>
#include <vector>

#include "core/machine.hpp"

namespace gradmeter::core {

/// Messages get what they share in the order in which they are asked for. Source of the cost: Hockney, Parallel
/// Computing 1994, with a serialised port.
class LinksInUse {
 public:
  /// The machine must outlive it. free: from when on each rank's way out is free [s].
  LinksInUse(const Machine& machine, std::vector<double> free);

  struct Passage {
    double begin = 0;      ///< when its first byte leaves [s]
    double seconds = 0;    ///< that it takes to leave, and to enter at the other end
    double latency_s = 0;  ///< until its first byte arrives
  };
  /// Takes the links for a message that is ready at `ready` [s].
  Passage send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, double ready);

 private:
  struct NodePorts {
    double out = 0, in = 0;  ///< free from then on [s]
  };
  NodePorts& ports_of(std::uint32_t rank);

  const Machine& machine_;
  std::vector<double> out_;  ///< by rank
  std::vector<NodePorts> nodes_;
  double trunk_ = 0;
};

}  // namespace gradmeter::core
