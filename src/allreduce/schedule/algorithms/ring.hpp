// The bandwidth-optimal ring: a reduce-scatter round the ring, then an all-gather round it.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// Blocks: p; rank r ends with block r's finished sum.
/// Cost:   p-1 rounds; (p-1)/p of the buffer sent by each rank.
/// Source: Patarasuk & Yuan, JPDC 2009, section 3.
SchedulePtr ring_reduce_scatter(std::uint32_t ranks);
/// Cost:   p-1 rounds; (p-1)/p of the buffer sent by each rank.
SchedulePtr ring_all_gather(std::uint32_t ranks);
/// Any p. Each element is summed once, in one order, and copied: all ranks hold equal bits.
/// Cost:   2(p-1) rounds; 2(p-1)/p of the buffer sent by each rank.
SchedulePtr ring(std::uint32_t ranks);

/// As a member of the registry: all-reduce, reduce-scatter, all-gather.
std::string ring_refusal(const Request&);
std::vector<SchedulePtr> make_ring(const Request&);
StatedCost ring_cost(const Request&);

}  // namespace gradmeter::allreduce
