// Our schedules between GPUs: groups of NCCL's sends and receives, and our own sums, in the stream of a queue.
#pragma once
#include <memory>
#include <string>

#include "allreduce/collective.hpp"
#include "allreduce/mover/executor.hpp"
#include "allreduce/registry.hpp"
#include "runtime/nccl/communicator.hpp"

namespace gradmeter::allreduce {

/// Runs the algorithm's schedules in the order of `linearise`: each round of each slice is one group of ncclSend and
/// ncclRecv, then cuda::reduce and cuda::finish; all in the queue's stream, so nothing of it waits on the host, which
/// adds a group when NCCL has taken the last one. Bits: those of an Executor with as many bytes a message.
/// Cost:   the schedule's; a group and the round's sums are one after the other, so transfers do not overlap sums.
///         Memory: an alternate a slice under way, and what lands for the sums of a round, taken here.
/// Errors: BackendError as Executor's, and NCCL's. `options.message_bytes` and `options.queue` must be given.
std::unique_ptr<Collective> make_nccl_messages(Algorithm, const Site&, runtime::NcclOptions, ExecutorOptions options);

/// The row `nccl-messages:schedule=ring,message=4M`. schedule: any row with a schedule of ours, by its name and one
/// parameter ("torus2d:rows=2"); message: bytes of a block's message, by which buffers are cut into slices.
std::string nccl_messages_refusal(const Request&);
/// Errors: BackendError without a queue of a GPU.
std::unique_ptr<Collective> bind_nccl_messages(const Request&, const Site&, const ExecutorOptions&);

}  // namespace gradmeter::allreduce
