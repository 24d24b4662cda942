// One shot: every rank sends its whole buffer to every other, and each adds all of them up. One round, whatever the
// ranks: the least latency, the most bytes. With a codec, contributions are encoded once and sums never.
// Source: as "one-shot" in TensorRT-LLM's custom all-reduce; Chan et al., 2007, section 4 (all-gather, then local sum).
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// Cost: 1 round of p-1 messages; n(p-1) sent by each rank; p·n added up by each.
std::string one_shot_refusal(const Request&);
std::vector<SchedulePtr> make_one_shot(const Request&);
StatedCost one_shot_cost(const Request&);

}  // namespace gradmeter::allreduce
