// Recursive doubling: partners at distance 1, 2, 4 … exchange whole buffers; the fewest rounds, the most bytes.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// Any p; ranks beyond the largest power of two q fold into a neighbour first and get the answer last.
/// Equal bits on all ranks because a two-operand sum is the same from both sides.
/// Cost:   log2 q rounds (two more when p > q); log2 q buffers sent by each rank (one more by a folding partner).
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4.
SchedulePtr recursive_doubling(std::uint32_t ranks);

std::string recursive_doubling_refusal(const Request&);
std::vector<SchedulePtr> make_recursive_doubling(const Request&);
StatedCost recursive_doubling_cost(const Request&);

}  // namespace gradmeter::allreduce
