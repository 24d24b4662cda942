// Asynchronous decentralised parallel SGD: each active rank averages its weights with a passive one, drawn anew in each
// step, which need not be at the same step.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// A step computes g(x_i), averages, x_i and x_j <- (x_i + x_j)/2, and then takes x_i <- x_i - step g, so that g is of
/// older weights. Ranks with an even number are active and begin averages, one a step, each with a passive rank (an odd
/// number) drawn by seed, rank and step. Passive ranks answer at any time, from a background task: an average waits for
/// no computation of the other rank, and as nobody waits for who waits there is no deadlock. With overlap an active
/// rank's weights travel during its pass, else after it. An average of two ranks is atomic chunk by chunk, of at most
/// 1 MiB; see pairs.hpp.
/// The paper has plain SGD. With other optimizers each rank has a state of its own, which is not averaged; they see the
/// averaged weights (for decay and norms) and the gradient at those before.
/// Staleness: averages between the read of the weights for a gradient and its update; on active ranks one.
/// Bytes: M from an active rank to a passive one and M back, in each step of each active rank. Memory: M, and of
/// passive ranks answers (pairs.hpp).
/// The evaluation weights: the mean of all x. One rank trains alone.
/// Source: Lian et al., "Asynchronous decentralized parallel stochastic gradient descent", ICML 2018, algorithm 1.
std::unique_ptr<Strategy> make_ad_psgd(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
