// Binomial trees: in every round, a reduction halves the ranks that still hold a part, and a broadcast doubles those
// that have the answer.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// Any p, any root. One block.
/// Cost:   ceil(log2 p) rounds, floor(log2 p) of them in a row for the last to have it; p-1 messages; the root sends
///         ceil(log2 p) buffers.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4.
SchedulePtr binomial_broadcast(std::uint32_t ranks, std::uint32_t root);
/// Any p; rank 0 ends with the finished sum. One block. In rank order: each sum is of neighbouring ranges of ranks.
/// A part of other schedules: alone it completes no collective.
/// Cost:   ceil(log2 p) rounds; p-1 messages; every other rank sends its buffer once.
SchedulePtr binomial_reduce(std::uint32_t ranks);

/// As a member of the registry: all-reduce (reduction to rank 0, then broadcast), broadcast.
std::string binomial_tree_refusal(const Request&);
std::vector<SchedulePtr> make_binomial_tree(const Request&);
StatedCost binomial_tree_cost(const Request&);

}  // namespace gradmeter::allreduce
