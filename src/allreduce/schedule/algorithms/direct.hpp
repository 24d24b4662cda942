// Direct exchange: every rank sends to every other, in as few rounds as possible.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// As a member of the registry: all-reduce (every rank sends each block to its owner, which adds up all p parts at
/// once, in rank order; then all-gather), its two phases, broadcast (the root to all), all-to-all. Any p.
/// Cost:   2 rounds of p-1 messages by each rank, 2n(p-1)/p sent by each; a phase or all-to-all: half of both;
///         broadcast: 1 round, n(p-1) sent by the root. Receivers get p-1 messages at once (incast).
/// Source: Markov et al., CGX, Middleware 2022 (scatter-reduce-allgather, SRA).
std::string direct_refusal(const Request&);
std::vector<SchedulePtr> make_direct(const Request&);
StatedCost direct_cost(const Request&);

}  // namespace gradmeter::allreduce
