// Synchronous data parallelism without redundant optimizer state: each rank updates the part of each bucket that it
// owns.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// Gradients are reduce-scattered bucket by bucket while backward goes on, each rank applies the optimizer of the
/// options to its own block of each bucket, and the weights are gathered while the next bucket is updated. Stage 1 of
/// the paper: gradients are exchanged as in stage 2, but live in one whole buffer on every rank, as weights do.
/// Blocks cut tensors: for an optimizer with norms, these are summed over all blocks, bucket by bucket.
/// Bytes: 2(P-1)/P · M for the ring, and with such an optimizer 16 for each tensor and pair of ranks. State: M/P of the
/// optimizer's.
/// Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", SC20, section 5.
std::unique_ptr<Strategy> make_sharded(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
