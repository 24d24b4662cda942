// SPDX-License-Identifier: Apache-2.0
// The rows of our own collectives between GPUs: kernels that read their peers' memory, and our schedules as groups of
// NCCL's messages.
#pragma once
#include <memory>
#include <string>

#include "allreduce/collective.hpp"
#include "allreduce/executor/executor.hpp"
#include "allreduce/registry.hpp"
#include "core/units.hpp"
#include "runtime/nccl/communicator.hpp"

namespace gradmeter::allreduce {

/// The row `gpu-direct:small=262144`. Up to `small` bytes each GPU sums all elements (one shot, one barrier); beyond,
/// each sums its own block and collects the blocks of the others (two shots, two barriers). A call is one kernel
/// (peer_kernels.hpp), which first copies its buffer to memory that peers have opened. The host takes no part in the
/// call. Binding is collective over the ranks of the exchange. Bits: those of the sum in rank order, the same on all
/// ranks.
/// Cost: memory of three buffers a rank; 1 or 2 barriers.
/// Source: the one- and two-shot kernels of TensorRT-LLM and vLLM, custom_all_reduce
/// Errors: Unavailable where ranks share a GPU; BackendError without a queue of a GPU, and where GPUs cannot reach each
/// other's memory. If ranks are threads of one process, a call ends with PeerFailed when another rank has failed. It
/// ends with BackendError when a rank has not come to a barrier within `PeerOptions::timeout`.
extern const AlgorithmInfo gpu_direct_row;

/// The row `gpu-multimem`: an all-reduce whose sums NVLink's switches compute, for GPUs with multicast memory (kernels
/// of peer_kernels.hpp, runtime::MulticastMemory). It takes sums and averages of fp32, and of fp16 and bf16 accumulated
/// in fp32. Bits: those of sums in the switch's own order, the same on all ranks.
/// Cost:   multicast memory of three buffers a rank, rounded up to 2 MiB; 2 barriers.
/// Errors: as gpu_direct_row's; Unavailable also where there is no multicast memory.
extern const AlgorithmInfo gpu_multimem_row;

/// The row `gpu-ring`, for long buffers: reductions, all-gather, broadcast and send-receive, in which each GPU reads
/// only the memory of its left neighbour (kernels of peer_kernels.hpp). Bits: those of the schedule `ring` in one
/// slice.
/// Cost:   memory of two buffers a rank; for an all-reduce 2(p-1) barriers between neighbours, and 2n(p-1)/p read by
///         each rank.
/// Source: Patarasuk & Yuan, JPDC 2009
/// Errors: as gpu_direct_row's.
extern const AlgorithmInfo gpu_ring_row;

struct PeerOptions {
  std::size_t max_bytes = 0;   ///< the longest buffer that will be given
  core::Seconds timeout{600};  ///< the longest wait for a peer
};
// The collectives that gpu_direct_row and gpu_ring_row bind. They exist only where CUDA is compiled in.
std::unique_ptr<Collective> make_gpu_direct(const GroupConnection&, runtime::Queue&, PeerOptions,
                                            std::size_t small = 262144);
std::unique_ptr<Collective> make_gpu_ring(const GroupConnection&, runtime::Queue&, PeerOptions, CollectiveKind,
                                          std::uint32_t root = 0);

// Our schedules between GPUs: groups of NCCL's sends and receives, and our own sums, in the stream of a queue.

/// Runs the algorithm's schedules in the order of `linearise`: each round of each slice is one group of ncclSend and
/// ncclRecv, then cuda::reduce and cuda::finish. All of this runs in the queue's stream, so work on the GPU never waits
/// for the host. The host submits a group once NCCL has accepted the one before, which need not have run. Bits: those
/// of an Executor whose messages have the same length.
/// Cost:   the schedule's. A group and the round's sums run one after the other, so transfers do not overlap sums.
///         This function allocates the memory: room for the data that a round receives for its sums, and, if a plan
///         has blocks in Place::alternate, a second buffer for each slice under way.
/// Errors: BackendError, for NCCL's errors and for those of Executor; UsageError without CUDA. `spec.message_bytes` and
/// `spec.queue` must be given.
std::unique_ptr<Collective> make_nccl_messages(ScheduledAlgorithm, const GroupConnection&, runtime::NcclOptions,
                                               ExchangeSpec spec);

/// The row `nccl-messages:schedule=ring,message=4M`. schedule: any of our rows with a schedule, by its name and at most
/// one parameter ("torus2d:rows=2"). message: the bytes of a block's message, which decide how buffers are cut into
/// slices.
/// Errors: BackendError without a queue of a GPU.
extern const AlgorithmInfo nccl_messages_row;

}  // namespace gradmeter::allreduce
