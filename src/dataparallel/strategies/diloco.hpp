// Workers train apart and exchange how far they came, not their weights: part by part, and while they go on training.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// With a the anchor, the weights at the block's beginning: when a block of `every` steps ends, the workers' changes
/// w - a are averaged, and a = outer SGD with Nesterov momentum on their mean; w = a.
///
/// fragments=n: the weights in n parts of equally many elements, whose blocks end every/n steps apart, so that no step
/// exchanges more than 1/n of them. The first blocks are shorter.
/// overlap=k, less than `every`: the changes are those at the block's end, but their exchange goes on during the next k
/// steps. After these a is updated, and w = mix·w + (1 - mix)·a: what the worker learned meanwhile stays with the
/// weight mix. Where k is 0, mix has no effect. With n and k that is Streaming DiLoCo's algorithm 2.
/// The codec encodes the changes; what it loses is added to the next block's, as by its own error feedback. Not dgc,
/// whose momentum is that of gradients, and with fragments not powersgd, since they cut its matrices.
///
/// Bytes: those of an all-reduce over all weights, with the codec, divided by `every`.
/// The evaluation weights: the mean of the workers' current weights.
/// Memory: 2M, with overlap 3M.
/// Source: Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023; "Streaming
/// DiLoCo with overlapping communication", 2025.
std::unique_ptr<Strategy> make_diloco(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
