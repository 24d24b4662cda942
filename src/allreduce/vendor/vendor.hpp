// SPDX-License-Identifier: Apache-2.0
// Collectives of libraries (MPI, gloo and NCCL), which are the baselines.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/gpu/stream_collective.hpp"
#include "allreduce/reduce.hpp"
#include "allreduce/registry.hpp"
#include "allreduce/schedule/slices.hpp"
#include "runtime/communicator.hpp"
#include "runtime/mpi/collectives.hpp"
#include "runtime/nccl/communicator.hpp"

namespace gradmeter::allreduce {

/// The library's operation for `op`. For `average` it is the sum, which is divided afterwards.
inline runtime::Combine combine_of(Op op) {
  if (op == Op::min) return runtime::Combine::min;
  if (op == Op::max) return runtime::Combine::max;
  return op == Op::product ? runtime::Combine::product : runtime::Combine::sum;
}

// The library of a row, and gloo's all-reduce, which PyTorch uses for tensors in host memory.

/// The library behind a vendor's row with its version, "gloo 0.5.0"; empty for the MPI library.
std::string library_of(const AlgorithmInfo&);

/// The row `gloo:algorithm=ring` or bcube: all-reduce on any ranks. Refused where the program was built without gloo.
extern const AlgorithmInfo gloo_row;

// The collectives of the MPI library, which are the baseline to beat.

/// The MPI calls that serve a collective. Where the number of ranks divides the count, an all-gather is MPI_Allgather
/// and a reduce-scatter is MPI_Reduce_scatter_block, as a user would call them. Otherwise these are MPI_Allgatherv and
/// MPI_Reduce_scatter, which take blocks of any lengths.
enum class MpiMode : std::uint8_t {
  blocking,     ///< `advance` waits for the end, or `start` does if the last call is repeated (`repeated_call_`); most
                ///< MPI libraries do this best
  nonblocking,  ///< `start` begins the call, and `advance` moves it on by MPI_Test
  any_lengths   ///< blocking, and always the calls for blocks of any lengths
};

/// MPI's collective of any kind. Blocks are cut by `block_begin` over the whole buffer. An average is a sum, then one
/// pass that divides. Types that MPI lacks use operators made from our own `reduce`, which round after every operation.
/// With MPI's own operators the vendor decides the results of NaN, of zeros of both signs in min and max, and of
/// integers that overflow (Open MPI 4.1 saturates int8 where it has AVX). Collectives without blocks (all-reduce,
/// broadcast, send-receive) are split into several calls above 2^30 elements. Errors: BackendError for other
/// collectives above 2^31 - 1 elements, and for an all-to-all whose count is no multiple of the ranks.
class MpiCollective final : public Collective {
 public:
  /// No other object may use `communicator`.
  MpiCollective(std::string name, runtime::Communicator communicator, MpiMode,
                CollectiveKind = CollectiveKind::all_reduce, std::uint32_t root = 0);
  const std::string& name() const override { return name_; }
  bool holds_up_other_calls() const override { return mode_ != MpiMode::nonblocking; }
  void start(const Call& call) override;
  bool advance() override;

 private:
  void check(const Call&) const;
  void post();
  void post(runtime::MpiBuffers);
  void complete();
  /// A reduction for one type and operation, made at its first use and kept.
  struct KnownReduction {
    core::Element element;
    Op op;
    runtime::Reduction reduction;
  };
  const runtime::Reduction& reduction_for(core::Element, Op);
  void cut_into_blocks(std::size_t count);

  std::string name_;
  runtime::Communicator communicator_;
  MpiMode mode_;
  CollectiveKind collective_kind_;
  int root_;
  std::vector<KnownReduction> reductions_;
  /// Makes calls like the last one, `call_`, on any buffers. Empty unless these are blocking all-reduces that take one
  /// MPI call and no work after it.
  std::optional<runtime::MpiAllReduce> repeated_call_;
  runtime::MpiCuts block_cuts_;
  std::size_t cut_elements_ = 0;    ///< number of elements that `block_cuts_` cuts
  std::vector<std::byte> landing_;  ///< scratch of a non-blocking send-receive that is in place
  runtime::MpiRequests requests_;
  Call call_{};
  std::size_t posted_ = 0;                    ///< number of elements whose MPI calls were made
  bool running_ = false, under_way_ = false;  ///< under_way_: MPI calls were made, and are not known to be done
};

/// Refuses the rows `mpi` and `mpi-nonblocking` where ranks are threads, which make no MPI calls. Where ranks are
/// processes, these rows serve every collective kind on any number of ranks.
std::string mpi_refusal(const Request&);
/// Refuses the row `mpi-v`, which serves reduce-scatter and all-gather, where ranks are threads.
std::string mpi_vector_refusal(const Request&);
/// Binds `mpi`, `mpi-nonblocking` and `mpi-v`.
std::unique_ptr<Collective> bind_mpi(const Request&, const GroupConnection&, const ExchangeSpec&);

// Open MPI's own all-reduce algorithms, forced one by one: the fastest shows what `mpi` could reach by the best choice.

/// The rows `ompi-basic-linear`, `ompi-nonoverlapping`, `ompi-recursive-doubling`, `ompi-ring`,
/// `ompi-segmented-ring:segment=1M` and `ompi-rabenseifner`: all-reduce, any ranks, blocking. Open MPI itself falls
/// back where an algorithm cannot serve (a ring of fewer elements than ranks: recursive doubling). Refused, with the
/// reason, where the MPI is not Open MPI or ignores forced algorithms. Source: Open MPI 4.1,
/// ompi/mca/coll/base/coll_base_allreduce.c
std::string ompi_refusal(const Request&);
std::unique_ptr<Collective> bind_ompi(const Request&, const GroupConnection&, const ExchangeSpec&);

// NCCL's collectives, in the stream of a GPU's queue.

/// NCCL's collective of any kind, on buffers of the queue's GPU. Blocks are cut by `block_begin` over the whole buffer:
/// equal ones go by ncclReduceScatter and ncclAllGather, others by a group of ncclReduce or ncclBroadcast, one for each
/// block. All-to-all and send-receive are groups of ncclSend and ncclRecv; in place they go through scratch. An average
/// is NCCL's sum, then `cuda::finish`, since ncclAvg would multiply each summand instead, by 1/ranks rounded to the
/// type. NCCL sums in an order of its own. Errors: BackendError for buffers of the host, an all-to-all whose count is
/// no multiple of the ranks, a call that accumulates in another type than its elements, sums of 8-bit floats before
/// sm_90 or NCCL 2.24, NCCL's asynchronous errors, and peers that do not take part in time.
class NcclCollective final : public StreamCollective {
 public:
  /// To be called by all ranks together. The queue must outlive the object. landing_bytes: scratch that is taken now,
  /// not at the first call that needs it; equal on all ranks.
  NcclCollective(std::string name, const runtime::Communicator&, runtime::NcclOptions, CollectiveKind,
                 std::uint32_t root, runtime::Queue&, std::size_t landing_bytes = 0);
  /// Aborts a call that is not complete, and waits for the queue, so that buffers may be freed.
  ~NcclCollective() override;
  const std::string& name() const override { return name_; }
  void start(const Call&) override;
  bool advance() override;
  Waiting waiting() const override { return {.peer = running_ ? nccl_.late_peer() : -1}; }
  void enqueue(const Call&) override;
  void register_buffers(std::span<const runtime::Buffer>) override;
  void before_launch() override;
  void check() override { nccl_.check(); }
  void note_completion() override { nccl_.note_completion(); }
  int late_peer() const override { return nccl_.late_peer(); }
  void abort() noexcept override { nccl_.abort(); }
  void on_abort(const std::function<void()>& destroy_graphs) override { nccl_.on_abort(destroy_graphs); }

 private:
  runtime::OwnedBuffer landing_on_all_ranks(const runtime::Communicator&, std::size_t bytes);
  void check_call(const Call&) const;
  void reserve_landing(std::size_t bytes);
  void submit(const Call&);
  void issue();
  void submit_work_after_nccl();
  void finish_average();
  void reduce_scatter(const runtime::NcclCalls&) const;
  void all_gather(const runtime::NcclCalls&) const;
  void all_to_all(const runtime::NcclCalls&) const;
  void send_receive(const runtime::NcclCalls&) const;
  ElementRange block(int rank) const;
  bool blocks_are_equal() const;
  /// True where a call receives its messages in scratch (`landing_`), since its buffers are in place.
  bool receives_in_scratch() const;
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
  bool running_ = false;
};

/// The reason why an NCCL of this version may silently serve the collective by its ring although this algorithm is
/// forced; empty: it does not. version: as running_nccl_version gives it.
std::string ring_instead_refusal(std::string_view algorithm, CollectiveKind, std::optional<int> version);

/// The row `nccl:algorithm=any,protocol=any`: every collective kind, any ranks, each on a GPU of its own. algorithm:
/// any (NCCL's choice), tree, ring, collnetdirect, collnetchain, nvls, nvlstree, pat; protocol: any, ll, ll128, simple;
/// as NCCL_ALGO and NCCL_PROTO have them. Refused: a program without NCCL; an algorithm that NCCL does not have for the
/// collective, or in whose place NCCL may take its ring (`ring_instead_refusal`); and an algorithm or a protocol for
/// all-to-all and send-receive. A protocol that NCCL does not have for this algorithm or machine ends in NCCL's own
/// error. LL128 is the user's risk: where links do not support it, data is wrong. Source: NCCL 2.28, "Environment
/// variables", NCCL_ALGO. Errors of binding: BackendError if there is no queue of a GPU.
extern const AlgorithmInfo nccl_row;

}  // namespace gradmeter::allreduce
