// Synchronous data parallelism: gradients are averaged over all ranks, bucket by bucket, while backward goes on.
#pragma once
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// Bytes: those of the all-reduce over all gradients: 2(P-1)/P · M for the ring.
/// Source: Goyal et al. 2017; buckets: Li et al., "PyTorch Distributed", VLDB 2020.
std::unique_ptr<Strategy> make_sync(const core::ParsedName&, const StrategyOptions&);

}  // namespace gradmeter::dataparallel
