// Lane decomposition, in which every rank of a node sends between nodes: reduce-scatter inside, all-reduce of n/g
// between, all-gather inside.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// Rings along the rows and columns of a grid of ranks, row after row, each `width` long: reduce-scatter in the rows,
/// all-reduce in the columns, all-gather in the rows. `width` divides `ranks`.
/// Cost:   2(width + ranks/width - 2) rounds of one message by each rank; 2n(p-1)/p sent by each.
SchedulePtr ring_grid(std::uint32_t ranks, std::uint32_t width);
StatedCost ring_grid_cost(std::uint32_t ranks, std::uint32_t width);

/// As a member of the registry: all-reduce over nodes of g ranks each. One node, or one rank per node: a ring.
/// Cost:   2(g + p/g - 2) rounds; 2n(p-1)/p sent by each rank, 2n(m-1)/(m·g) of it between the m nodes.
/// Source: Traeff and Hunold, CLUSTER 2020 (lane decomposition); UCC's split rail.
std::string hierarchical_lane_refusal(const Request&);
std::vector<SchedulePtr> make_hierarchical_lane(const Request&);
StatedCost hierarchical_lane_cost(const Request&);

}  // namespace gradmeter::allreduce
