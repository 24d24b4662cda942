// Rabenseifner's all-reduce: recursive halving, then recursive doubling; few rounds and few bytes.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// As a member of the registry: all-reduce for any p, ranks beyond the largest power of two q by folding;
/// reduce-scatter and all-gather for powers of two. Each element is summed once and copied: equal bits.
/// Cost:   2·log2 q rounds (two more when p > q); 2n(q-1)/q sent by each rank (n more by a folding partner).
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4.
std::string rabenseifner_refusal(const Request&);
std::vector<SchedulePtr> make_rabenseifner(const Request&);
StatedCost rabenseifner_cost(const Request&);

}  // namespace gradmeter::allreduce
