// Collectives among the GPUs of a node by kernels that read their peers' memory, through CUDA IPC between processes and
// by plain addresses between threads. A call is one kernel: nothing of it needs the host.
#pragma once
#include <memory>
#include <string>

#include "allreduce/collective.hpp"
#include "allreduce/registry.hpp"

namespace gradmeter::allreduce {

/// The row `gpu-direct:small=262144`: up to `small` bytes in one shot, beyond in two (kernels of cuda/peer_reduce.hpp).
/// A call is one kernel, which copies its buffer to memory that peers have opened: nothing of it needs the host.
/// Bits: those of the sum in rank order, the same on all ranks.
/// Cost:   memory of three buffers a rank; 1 or 2 barriers.
/// Source: the one- and two-shot kernels of TensorRT-LLM and vLLM, custom_all_reduce
std::string gpu_direct_refusal(const Request&);
/// Collective over the site's ranks. Errors: BackendError without a queue of a GPU, or where GPUs cannot reach each
/// other's memory.
std::unique_ptr<Collective> bind_gpu_direct(const Request&, const Site&, const ExecutorOptions&);

/// The row `gpu-ring`, for long buffers: reductions, all-gather, broadcast and send-receive, in which each GPU reads
/// its left neighbour alone (kernels of cuda/peer_ring.hpp). Bits: those of the schedule `ring` in one slice. Cost:
/// memory of two buffers a rank; 2(p-1) barriers between neighbours, 2n(p-1)/p read by each rank, of an
///         all-reduce.
/// Source: Patarasuk & Yuan, JPDC 2009
std::string gpu_ring_refusal(const Request&);
/// Errors: as bind_gpu_direct.
std::unique_ptr<Collective> bind_gpu_ring(const Request&, const Site&, const ExecutorOptions&);

}  // namespace gradmeter::allreduce
