// NCCL's collectives, in the stream of a GPU's queue.
#pragma once
#include <memory>
#include <string>

#include "allreduce/cuda/registered_buffers.hpp"
#include "allreduce/cuda/stream_collective.hpp"
#include "allreduce/registry.hpp"
#include "runtime/nccl/communicator.hpp"

namespace gradmeter::allreduce {

/// Any collective kind, on buffers of the queue's GPU. Blocks are cut by `block_begin` over the whole buffer: equal
/// ones go by ncclReduceScatter and ncclAllGather, others by a group of ncclReduce or ncclBroadcast, one a block.
/// All-to-all and send-receive are groups of ncclSend and ncclRecv, in place by way of scratch. Average: NCCL's sum,
/// then `cuda::finish`, since ncclAvg multiplies by a rounded 1/ranks. The order of NCCL's sums is its own.
/// Errors: BackendError for buffers of the host, an all-to-all whose count is no multiple of the ranks, sums of 8-bit
/// floats before sm_90, NCCL's asynchronous errors, and peers that do not come.
class NcclCollective final : public StreamCollective, public RegistersBuffers {
 public:
  /// Collective. The queue outlives it. `landing_bytes`: scratch that is taken now, not at the first call.
  NcclCollective(std::string name, const runtime::Communicator&, runtime::NcclOptions, CollectiveKind,
                 std::uint32_t root, runtime::Queue&, std::size_t landing_bytes = 0);
  /// Aborts a call that is given up, and waits for the queue: buffers may go then.
  ~NcclCollective() override;
  const std::string& name() const override { return name_; }
  void start(const Call&) override;
  bool advance() override;
  Waiting waiting() const override { return {.peer = running_ ? nccl_.late_peer() : -1}; }
  void enqueue(const Call&) override;
  void register_buffers(std::span<const runtime::Buffer>) override;
  void launched() override;
  void check() override { nccl_.check(); }
  void completed() override { nccl_.completed(); }
  int late_peer() const override { return nccl_.late_peer(); }
  void abort() noexcept override { nccl_.abort(); }
  void before_abort(std::function<void()> what) override { nccl_.before_abort(std::move(what)); }

 private:
  void check_call(const Call&) const;
  void reserve_landing(std::size_t bytes);
  void submit(const Call&);
  void issue();
  void follow_up();
  void finish_average();
  void reduce_scatter(const runtime::NcclCalls&) const;
  void all_gather(const runtime::NcclCalls&) const;
  void all_to_all(const runtime::NcclCalls&) const;
  void send_receive(const runtime::NcclCalls&) const;
  /// Elements [begin, begin + count).
  struct Block {
    std::size_t begin, count;
  };
  Block block(int rank) const;
  bool blocks_are_equal() const;
  bool lands() const;
  const std::byte* in(std::size_t element) const;
  std::byte* out(std::size_t element) const;
  std::byte* landing_or_out(std::size_t element) const;

  std::string name_;
  runtime::Queue& queue_;
  CollectiveKind collective_kind_;
  [[maybe_unused]] int root_;
  runtime::OwnedBuffer landing_ = {};
  runtime::NcclCommunicator nccl_;
  Call call_{};
  runtime::EventPtr done_;
  bool running_ = false, launched_ = false;
};

/// The row `nccl:algorithm=any,protocol=any`: every collective kind, any ranks, each on a GPU of its own. algorithm:
/// any (NCCL's choice), tree, ring, collnetdirect, collnetchain, nvls, nvlstree, pat; protocol: any, ll, ll128, simple;
/// as NCCL_ALGO and NCCL_PROTO have them. A combination that NCCL does not have ends in NCCL's own error. LL128 is the
/// user's risk: where the links do not support it, data is wrong. Refused where the program was built without NCCL.
/// Source: NCCL 2.28, "Environment variables", NCCL_ALGO
std::string nccl_row_refusal(const Request&);
/// Errors: BackendError without a queue of a GPU.
std::unique_ptr<Collective> bind_nccl(const Request&, const Site&, const ExecutorOptions&);

}  // namespace gradmeter::allreduce
