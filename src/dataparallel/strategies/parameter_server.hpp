// Parameter servers: workers push gradients to servers that hold the weights in shards, and pull weights from them.
//
// A step is: pass, push, pull. Chunks leave as soon as backward has announced their gradients
// (StrategyOptions.overlap).
//   ps-sync     a pull waits for the pushes of all; they are applied as one step of their mean, summed in rank order
//   ps-ssp      a pull waits until the slowest worker is at most `staleness` updates behind
//   ps-async   a pull never waits
// push=n: n gradients are summed before they are pushed; in between, and where no pull follows, the worker applies its
// own. fetch=n: weights are pulled after every n-th step; with `staleness` also after a push that leaves the worker's
// weights too old for its next step, as in the paper's cache. scale=mean: a worker's push steps size/P, so that P
// pushes move as far as one step of `sync`; scale=sum: the whole size, as in Downpour; scale=staleness: the size
// divided by the updates that the gradient missed. prefetch=1: weights for the next step are requested before this one
// is computed, so they travel meanwhile and lack its gradient.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// Bytes: M up with every push, M down with every pull; none between a worker and the server on its own rank.
/// Time: at least max(M/B, P·M/(S·B)) a step with S dedicated servers, 2(P-1)M/(P·B) with servers on all ranks.
/// Memory: a server's, and of a worker M for weights that come while it computes, M with push > 1, M with feedback.
/// Source: Dean et al. (DistBelief, Downpour), NIPS 2012; Li et al., OSDI 2014; SSP: Ho et al., NIPS 2013;
/// scale=staleness and n-softsync: Zhang et al., "Staleness-aware Async-SGD", IJCAI 2016; backup workers: Chen et al.,
/// "Revisiting distributed synchronous SGD", 2016; DC-ASGD: Zheng et al., ICML 2017.
std::unique_ptr<Strategy> make_ps_sync(const core::ParsedName&, const StrategyOptions&);
std::unique_ptr<Strategy> make_ps_async(const core::ParsedName&, const StrategyOptions&);
std::unique_ptr<Strategy> make_ps_ssp(const core::ParsedName&, const StrategyOptions&);
std::unique_ptr<Strategy> make_ps_backup(const core::ParsedName&, const StrategyOptions&);
std::unique_ptr<Strategy> make_ps_softsync(const core::ParsedName&, const StrategyOptions&);
std::unique_ptr<Strategy> make_dc_asgd(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
