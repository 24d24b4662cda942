// The vendor's MPI collectives as shipped: the baseline to beat.
#pragma once
#include <string>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/registry.hpp"
#include "runtime/mpi/collectives.hpp"

namespace gradmeter::allreduce {

enum class MpiMode : std::uint8_t {
  blocking,    ///< `advance` returns when the call is complete: what most MPIs do best
  nonblocking  ///< begun by `start`, moved on by MPI_Test in `advance`
};

/// Which MPI calls move blocks: for equal blocks the one that a user would make, or always the one for blocks of any
/// lengths.
enum class MpiBlocks : std::uint8_t {
  by_count,  ///< MPI_Allgather, MPI_Reduce_scatter_block where the ranks divide the count, else as `vector`
  vector     ///< MPI_Allgatherv, MPI_Reduce_scatter
};

/// Any collective kind. Blocks are cut by `block_begin` over the whole buffer. Average: the sum, then one pass that
/// divides. Types that MPI lacks go through operators made from our own `reduce`, which round after every operation.
/// With MPI's own operators the vendor decides what becomes of NaN and of zeros of both signs in min and max, and of
/// integers that overflow (Open MPI 4.1 saturates int8 where it has AVX).
/// Counts above 2^30 elements go in pieces where blocks stay whole (all-reduce, broadcast, send-receive).
/// Errors: BackendError for other collectives above 2^31 - 1 elements, and for an all-to-all whose count is no multiple
/// of the ranks.
class MpiCollective final : public Collective {
 public:
  /// No other object may use `communicator`.
  MpiCollective(std::string name, runtime::Communicator communicator, MpiMode,
                CollectiveKind = CollectiveKind::all_reduce, std::uint32_t root = 0, MpiBlocks = MpiBlocks::by_count);
  const std::string& name() const override { return name_; }
  void start(const Call& call) override;
  bool advance() override;

 private:
  void check(const Call&) const;
  void post();
  void post(runtime::MpiBuffers);
  void complete();
  /// Operators and cuts are made once for each that has been asked for.
  struct KnownReduction {
    core::Element element;
    Op op;
    runtime::Reduction reduction;
  };
  const runtime::Reduction& reduction_for(core::Element, Op);
  void cut(std::size_t count);

  std::string name_;
  runtime::Communicator communicator_;
  MpiMode mode_;
  CollectiveKind collective_kind_;
  int root_;
  MpiBlocks blocks_;
  std::vector<KnownReduction> reductions_;
  runtime::MpiCuts cuts_;
  std::size_t cut_count_ = 0;
  std::vector<std::byte> landing_;  ///< of a non-blocking send-receive in place
  runtime::MpiRequests requests_;
  Call call_{};
  std::size_t posted_ = 0;  ///< elements
  bool running_ = false, under_way_ = false;
};

/// The rows `mpi` and `mpi-nonblocking`: every collective kind, any ranks.
std::unique_ptr<Collective> bind_mpi(const Request&, const Site&, const ExecutorOptions&);
std::unique_ptr<Collective> bind_mpi_nonblocking(const Request&, const Site&, const ExecutorOptions&);
/// Refuses the rows `mpi` and `mpi-nonblocking` where ranks are threads, which make no MPI calls.
std::string mpi_refusal(const Request&);
/// The row `mpi-v`: reduce-scatter and all-gather, by the calls for blocks of any lengths.
std::string mpi_vector_refusal(const Request&);
std::unique_ptr<Collective> bind_mpi_vector(const Request&, const Site&, const ExecutorOptions&);

}  // namespace gradmeter::allreduce
