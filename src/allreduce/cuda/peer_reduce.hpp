// All-reduces in one kernel a GPU, which reads the memory of its peers.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "allreduce/cuda/peer_window.hpp"
#include "allreduce/reduce.hpp"
#include "core/element.hpp"

namespace gradmeter::allreduce::cuda {

/// n elements of `from`, which may be `to`; first of all they are copied to the window. Every rank must queue the same
/// call, of up to two barriers, on windows of three places. Sums are in rank order: equal bits on all GPUs, and those
/// of allreduce::reduce and finish. Errors: BackendError.
/// One shot: each GPU sums all elements. Cost: 1 barrier, (ranks+1)·n elements read, 2·n written.
void reduce_peers_at_once(core::Element, core::Element accumulate, Op, const PeerCall&, const std::byte* from,
                          std::byte* to, std::size_t n, cudaStream_t);
/// Two shots: each GPU sums its block, and collects the others'. Cost: 2 barriers, 3·n elements read, 2·n and its block
/// written.
void reduce_peers_by_blocks(core::Element, core::Element accumulate, Op, const PeerCall&, const std::byte* from,
                            std::byte* to, std::size_t n, cudaStream_t);

}  // namespace gradmeter::allreduce::cuda
