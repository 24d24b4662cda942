// Elastic averaging: workers train by themselves; their weights and a centre on the servers attract each other.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// In every `every`-th step a worker pulls the centre c while it computes its gradient g at x, and takes both terms at
/// that x: x <- x - d - step g(x), d = alpha (x - c), alpha = beta/P; the servers add its d to the centre. No worker
/// waits for another (the asynchronous form).
/// Bytes: 2M / every a step. Memory: servers', and of a worker 2M.
/// Source: Zhang, Choromanska and LeCun, "Deep learning with elastic averaging SGD", NIPS 2015, algorithm 1.
std::unique_ptr<Strategy> make_easgd(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
