// Each node's first rank is its leader: reduction to the leader, a ring between leaders, broadcast inside.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// As a member of the registry: all-reduce over m nodes of g ranks each; inside a node binomial trees. One node: these
/// trees alone; one rank per node: a ring.
/// Cost:   2(m-1) rounds between nodes, ceil(log2 g) + floor(log2 g) inside; 2m(m-1) + 2m(g-1) messages; a leader sends
///         2n(m-1)/m between nodes and n·ceil(log2 g) inside.
/// Source: Luo et al., HAN, CLUSTER 2020 (Open MPI).
std::string hierarchical_leader_refusal(const Request&);
std::vector<SchedulePtr> make_hierarchical_leader(const Request&);
StatedCost hierarchical_leader_cost(const Request&);

}  // namespace gradmeter::allreduce
