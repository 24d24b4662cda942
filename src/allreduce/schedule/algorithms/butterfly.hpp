// The exchange in levels behind rabenseifner, bcube and direct. Ranks are numbers of `levels` digits in a base; on each
// level, ranks that differ in one digit exchange all with all.
#pragma once
#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

/// Ranks and blocks: base^levels. Rank r ends with block r's finished sum; the farthest digit first, so that each
/// message is one run of blocks. Base 1: a single rank.
/// Cost:   `levels` rounds of base-1 messages by each rank; (p-1)/p of the buffer sent by each.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4 (base 2: recursive halving).
SchedulePtr butterfly_reduce_scatter(std::uint32_t base, std::uint32_t levels);
/// The same way back: block r starts at rank r, the nearest digit first. Cost: as above.
SchedulePtr butterfly_all_gather(std::uint32_t base, std::uint32_t levels);
/// All-reduce, reduce-scatter or all-gather.
SchedulePtr butterfly(CollectiveKind, std::uint32_t base, std::uint32_t levels);
StatedCost butterfly_cost(CollectiveKind, std::uint32_t base, std::uint32_t levels);

}  // namespace gradmeter::allreduce
