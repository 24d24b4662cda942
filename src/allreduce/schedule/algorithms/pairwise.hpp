// All-to-all by swaps between pairs: a rank exchanges with one other at a time.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// As a member of the registry: all-to-all. In round k ranks a and b with a + b = k (mod p) swap the blocks that each
/// has for the other, so a block's place is emptied and filled in the same round, for any p, in place too.
/// Cost:   p rounds (p = 2: 1), in one of which a rank rests; n(p-1)/p sent by each rank.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4 (pairwise exchange, there with r XOR k).
std::string pairwise_refusal(const Request&);
std::vector<SchedulePtr> make_pairwise(const Request&);
StatedCost pairwise_cost(const Request&);

}  // namespace gradmeter::allreduce
