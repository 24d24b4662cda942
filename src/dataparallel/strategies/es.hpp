// Evolution strategies: gradients estimated from losses at perturbed weights. Only scalars travel.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// Each rank evaluates its share of n pairs θ ± σε on its batch; F is less the mean loss. The differences F+ - F- are
/// gathered, and every rank draws all ε again and applies θ += a/(2nσ) Σ (F+ - F-) ε in the order of the pairs, so that
/// all hold equal bits; a is the step size. `pairs`: of all ranks together, rounded up to a multiple of the ranks.
/// `step` returns the mean over the perturbed models: the search follows their mean loss.
/// Of a replica on several ranks one has the losses: it sends the others its share of the differences. Each draws ε by
/// its weights' places in the whole model, so the search is that of a replica on one rank.
/// Bytes: scalars: those of an all-gather of n floats, and of n/P to each other rank of a replica. Compute: 2n/P
/// forward passes a rank, and n·M of noise. The estimate is off by sqrt((d - 1)/n) of the gradient's length, d the
/// number of weights: take as small steps. Source: Salimans et al., "Evolution strategies as a scalable alternative to
/// reinforcement learning", 2017, algorithm 2; antithetic pairs: section 2.1. Signs as noise: see signs.hpp.
std::unique_ptr<Strategy> make_es(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
