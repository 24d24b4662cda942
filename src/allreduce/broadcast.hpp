// Broadcast by a binomial tree: the ranks that have it double in every round.
#pragma once
#include "allreduce/schedule.hpp"

namespace gradmeter::allreduce {

/// Any p, any root. One block.
/// Cost:   ceil(log2 p) rounds; p-1 messages; the root sends ceil(log2 p) buffers.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4.
SchedulePtr binomial_broadcast(std::uint32_t ranks, std::uint32_t root);

}  // namespace gradmeter::allreduce
