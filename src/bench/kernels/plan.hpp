// From lists of problems to the points of a kernel sweep.
#pragma once
#include <string>
#include <vector>

#include "core/result.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/communicator.hpp"
#include "runtime/device.hpp"

namespace gradmeter::bench {

/// Where operands are when a call begins: in the caches, as the call before left them, or in memory.
enum class CacheState : std::uint8_t { hot, cold };
std::string_view name(CacheState);

/// Conditions on a problem's text, all of which must hold: "m=1760,n=16". A condition without '=' may match anywhere in
/// "gemm:m=1760,… forward DeepSpeech". Empty: everything matches.
class ProblemFilter {
 public:
  ProblemFilter() = default;
  explicit ProblemFilter(const std::string& text);
  bool matches(const kernels::Problem&) const;

 private:
  std::vector<std::string> conditions_;
};

/// `training`: from a list for training, so that it is compared with published results of training.
struct ChosenProblem {
  kernels::Problem problem;
  bool training = true;
};

struct KernelFactors {
  std::vector<ChosenProblem> problems;
  ProblemFilter filter;
  std::vector<kernels::Pass> passes;           ///< empty: all
  std::vector<kernels::Precision> precisions;  ///< empty: each problem's own
  std::vector<CacheState> caches{CacheState::hot};
  /// More than the first make sense on a GPU alone.
  std::vector<kernels::AlgorithmSearch> searches{kernels::AlgorithmSearch::estimated};
  std::vector<std::size_t> batches;  ///< instead of the problems' own; empty: as they are
  bool packed = false;               ///< weights of products in the backend's own layout
};

struct KernelPoint {
  kernels::Problem problem;
  CacheState cache = CacheState::hot;
  kernels::AlgorithmSearch search = kernels::AlgorithmSearch::estimated;
  bool training = true;
  std::size_t batch = 0;  ///< in a sweep over it; 0: none
};

/// By problem, batch, precision, cache, search, in the order given; each once.
/// Errors: UsageError when the filter leaves nothing, and when problems without a batch are to be swept over it.
std::vector<KernelPoint> plan_kernels(const KernelFactors&);

/// How many ranks run it at once, where, and with how many threads each.
struct KernelPlacement {
  int ranks = 1, nodes = 1, ranks_per_node = 1, threads = 1;
  runtime::RanksAs ranks_as = runtime::RanksAs::processes;
  std::string device = "cpu";
};
core::Factors to_factors(const KernelPoint&, const KernelPlacement&);

/// Operand sets that a point rotates through: one for hot; for cold as many as are larger than twice the last-level
/// cache together, at least 2.
std::size_t operand_sets(CacheState, std::size_t set_bytes, std::size_t last_cache_bytes);
/// Memory of a rank [bytes].
struct KernelMemory {
  std::size_t host = 0;    ///< its sets, and one of them as doubles while it is checked; the latter alone with a device
  std::size_t device = 0;  ///< its sets
};
/// last_cache_bytes: the device's.
KernelMemory kernel_memory(const KernelPoint&, std::size_t last_cache_bytes,
                           const runtime::Device& = runtime::host_device());

}  // namespace gradmeter::bench
