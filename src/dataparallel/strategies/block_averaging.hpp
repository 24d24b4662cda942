// Workers train apart for a block of steps, then average: strategies that differ in how they use the mean of
// their weights.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// After every `every` local steps, w = mean(w). The first `start` steps are each a block of their own, as in
/// post-local SGD: for optimizers that are linear in the gradient that is `sync`.
/// Bytes, all of them: those of an all-reduce over all weights, divided by `every`: 2(P-1)/P · M / every for the ring.
/// The evaluation weights, all of them: the mean of the workers' current weights, also within a block.
/// Source: McDonald et al., NAACL 2010; Su & Chen, "Experiments on parallel training of deep neural network using model
/// averaging", 2015; post-local: Lin et al., "Don't use large mini-batches, use local SGD", ICLR 2020.
std::unique_ptr<Strategy> make_model_averaging(const core::ParsedName&, const StrategyOptions&);

/// model-averaging whose blocks get shorter as the loss F falls. At the first end of a block after every `interval`
/// steps they become ceil(sqrt(F/F0)·every) steps long, where that is less than they are, else gamma times as long;
/// one step at least. F is the mean loss of all ranks' steps since the last change, F0 that of the first step. So all
/// ranks have the same periods. The paper changes them every so many seconds, and takes the loss at that time; here
/// runs repeat. It is not told step sizes.
/// Bytes: as model-averaging with `every` at least; once the period may have changed, `predict` is the most, blocks of
/// one step. With each change 2 floats are averaged too. A replica's rank that has the loss sends it to the others in
/// each step.
/// Source: Wang & Joshi, "Adaptive communication strategies to achieve the best error-runtime trade-off in local-update
/// SGD", MLSys 2019.
std::unique_ptr<Strategy> make_adacomm(const core::ParsedName&, const StrategyOptions&);

/// Block-wise model update filtering: Δ = mean(w) - w0; v = mu·v + zeta·Δ; w = w0 + v, where w0 are the weights at the
/// block's beginning; nesterov=1: w = w0 + zeta·Δ + mu·v, see optimizers/outer.hpp. mu=auto: 1 - 1/P, the paper's
/// choice.
/// Memory: 2M. Source: Chen & Huo, ICASSP 2016.
std::unique_ptr<Strategy> make_bmuf(const core::ParsedName&, const StrategyOptions&);

/// Slow momentum: with x the workers' mean and w0 the weights at the block's beginning u = beta·u + (w0 - x)/step;
/// w = w0 - alpha·step·u. The step size is that of the block's last step: where it changes between blocks, u stays and
/// its share in w changes with it; where it changes within one, the whole block counts as made with the last.
/// buffers: what becomes of the optimizer's state (momentum and the like) when blocks end, as in the paper: each worker
/// keeps its own (maintain), all take the mean (average, which costs an all-reduce for each buffer), or it is zero
/// again, and Adam's count of steps with it (reset).
/// Memory: 2M. Source: Wang, Tantia, Ballas & Rabbat, "SlowMo: improving communication-efficient distributed SGD with
/// slow momentum", ICLR 2020, algorithm 1.
std::unique_ptr<Strategy> make_slowmo(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
