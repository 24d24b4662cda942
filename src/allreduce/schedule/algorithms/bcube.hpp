// The all-reduce of gloo: ranks are numbers in some base, and there is one exchange for each digit.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// As a member of the registry: all-reduce, reduce-scatter, all-gather. Parameter base, 2 or more. p that is no power
/// of the base runs as `direct`, as in gloo.
/// Cost:   p = base^k: 2k rounds of base-1 messages by each rank; 2n(p-1)/p sent by each. Else that of direct.
/// Source: Facebook's gloo, gloo/allreduce.cc (allreduceAlgorithm bcube).
std::string bcube_refusal(const Request&);
std::vector<SchedulePtr> make_bcube(const Request&);
StatedCost bcube_cost(const Request&);

}  // namespace gradmeter::allreduce
