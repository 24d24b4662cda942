// One shot: everybody sends the whole buffer to everybody, who add all of them up. One round, whatever the ranks: the
// fewest latencies there can be, for the most bytes. With a codec, each contribution is encoded once and no sum ever.
// Source: as "one-shot" in TensorRT-LLM's custom all-reduce; Chan et al., 2007, section 4 (all-gather, then local sum).
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// Cost: 1 round of p-1 messages; n(p-1) sent by each rank; p·n added up by each.
std::string one_shot_refusal(const Request&);
std::vector<SchedulePtr> make_one_shot(const Request&);
StatedCost one_shot_cost(const Request&);

}  // namespace gradmeter::allreduce
