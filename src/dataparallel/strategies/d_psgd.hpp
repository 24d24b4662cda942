// Decentralised parallel SGD: each rank averages its weights with its neighbours' and applies its own gradient.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// x_i <- sum_j W_ij x_j - step g_i(x_i): weights travel during the pass that computes the gradient at them, and are
/// averaged before it is applied. W gives a rank and its neighbours equal parts, so it is symmetric and doubly
/// stochastic. graph=ring: both neighbours, W = 1/3 (two ranks: 1/2). graph=hypercube: one neighbour a step, rank xor
/// 2^(t mod ceil(log2 P)), W = 1/2; where P is no power of two, some ranks have none in some steps. It has half the
/// ring's bytes. For P a power of two the product over log2 P steps is the exact mean, which the ring's differences
/// only come to by 1/3 + 2/3 cos(2 pi/P) a step. The paper has plain SGD. With other optimizers each rank has a state
/// of its own, which is not averaged; the rule sees the averaged weights (for decay and norms) and the gradient at
/// those before. Bytes: ring 2M sent by each rank in each step (two ranks: M), hypercube M by each that has a
/// neighbour. Memory: as much as a rank receives. The evaluation weights: the mean of all x. Source: Lian et al., "Can
/// decentralized algorithms outperform centralized algorithms?", NIPS 2017, algorithm 1; hypercube: Shi et al.,
/// "Finite-time convergent gossiping", IEEE/ACM Trans. Networking 2016.
std::unique_ptr<Strategy> make_d_psgd(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
