// Collectives in one kernel a GPU, in which each reads its left neighbour's memory alone.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "allreduce/cuda/peer_window.hpp"
#include "allreduce/reduce.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "core/element.hpp"

namespace gradmeter::allreduce::cuda {

/// Barriers that a call may use.
constexpr unsigned ring_barriers(unsigned ranks) { return 8 * ranks; }

/// Every rank must queue the same call: any kind but all-to-all; slots in turn, call by call. A rank passes on, in its
/// slot, what it has taken from its left neighbour; each block of threads has its slice of every step, and runs ahead
/// of the others. in == out: in place. Blocks are cut by `block_begin` over the whole buffer, and bits are those of the
/// schedule `ring` in one slice. `root` counts in a broadcast alone, which goes from it round the ring in pieces.
/// Errors: BackendError. Cost: p-1 steps, twice as many for an all-reduce, each of a barrier between neighbours and n/p
/// elements read and written; broadcast: as many steps as pieces and p-2 more; send-receive: 1 barrier of all.
void ring_over_peers(CollectiveKind, core::Element, Op, const PeerCall&, unsigned root, const std::byte* in,
                     std::byte* out, std::size_t n, cudaStream_t);

}  // namespace gradmeter::allreduce::cuda
