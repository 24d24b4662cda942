// Synchronous data parallelism without redundant optimizer state: each rank updates the part of each bucket that it
// owns.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// Gradients are reduce-scattered bucket by bucket while backward goes on, each rank applies the optimizer of the
/// options to its own block of each bucket, and the weights are gathered while the next bucket is updated. Stages 1 and
/// 2 of the paper at once: gradients live in one whole buffer here, so stage 2 shows in the exchange, not in memory.
/// Blocks cut tensors: for an optimizer with norms, these are summed over all blocks, bucket by bucket.
/// Bytes: 2(P-1)/P · M for the ring, and with such an optimizer 16 for each tensor and pair of ranks. State: M/P of the
/// optimizer's.
/// Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", SC20, section 5.
std::unique_ptr<Strategy> make_sharded(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
