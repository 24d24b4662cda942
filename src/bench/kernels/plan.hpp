// SPDX-License-Identifier: Apache-2.0
// Makes the points of a kernel sweep from lists of problems.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/result.hpp"
#include "core/units.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/communicator.hpp"
#include "runtime/device.hpp"

namespace gradmeter::bench {

/// The place of the operands when a call begins. hot: in the caches, as the call before left them. cold: in memory.
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

struct ChosenProblem {
  kernels::Problem problem;
  bool is_from_training_list = true;  ///< true: it is compared with published results of training
};

struct KernelFactors {
  std::vector<ChosenProblem> problems;
  ProblemFilter filter;
  std::vector<kernels::Pass> passes;           ///< empty: all
  std::vector<kernels::Precision> precisions;  ///< empty: each problem's own
  std::vector<CacheState> caches{CacheState::hot};
  /// The ways in which a library chooses an algorithm; values besides `estimated` make a difference on GPUs only.
  std::vector<kernels::AlgorithmSearch> searches{kernels::AlgorithmSearch::estimated};
  std::vector<std::size_t> batches;  ///< mini-batches that replace the problems' own; empty: problems stay as they are
  std::size_t repeats = 1;           ///< measurements of the same work
  bool packed = false;               ///< true: the right operand of products, B, is in the backend's own layout
};

struct KernelPoint {
  kernels::Problem problem;
  CacheState cache = CacheState::hot;
  kernels::AlgorithmSearch search = kernels::AlgorithmSearch::estimated;
  bool is_from_training_list = true;
  std::size_t batch = 0;   ///< the mini-batch, in a sweep over mini-batches; 0: there is no such sweep
  std::size_t repeat = 0;  ///< the number, from 1, of this measurement of the same work; 0: it is the only one
};

/// The points, ordered by problem, batch, precision, cache, search and repeat, as given; each point once.
/// Errors: UsageError when the filter leaves nothing, and for `batches` of packed products or problems without a batch.
std::vector<KernelPoint> plan_kernels(const KernelFactors&);

/// The number of ranks that run a point at once, the number of their nodes, and the number of threads of each rank.
struct KernelPlacement {
  int ranks = 1, nodes = 1, ranks_per_node = 1, threads = 1;
  runtime::RanksAs ranks_as = runtime::RanksAs::processes;
  std::string device = "cpu";
};
core::Factors to_factors(const KernelPoint&, const KernelPlacement&);

/// The bytes of all caches that the cores of a rank use: `last_caches` bytes of the last level, and `l2` bytes for each
/// thread. By convention 0 (unknown) if `last_caches` is 0.
std::size_t all_cache_bytes(std::size_t last_caches, std::size_t l2, int threads);
/// The bytes of an operand set that a call reads or writes. They are fewer than the set has if a call skips a part.
std::size_t touched_bytes(const kernels::Problem&, const runtime::Device& = runtime::host_device());
/// The number of operand sets that a point rotates through. hot: one. cold: as many as calls need to touch more than
/// twice `cache_bytes` in all sets together, but from 2 to 16,384. cache_bytes: all caches of the rank's cores; by
/// convention 0 stands for 64 MiB.
std::size_t operand_sets(CacheState, std::size_t touched_bytes, std::size_t cache_bytes);
/// The memory that a rank needs [bytes].
struct KernelMemory {
  /// The operand sets (one set if the point runs on a device), and the check's copy of one set in float64; for bf16
  /// also a copy in fp32.
  std::size_t host = 0;
  std::size_t device = 0;  ///< the operand sets of a point on a device
};
/// cache_bytes: the size of the device's last cache, or of all caches that the rank's cores use.
KernelMemory kernel_memory(const KernelPoint&, std::size_t cache_bytes,
                           const runtime::Device& = runtime::host_device());

// Divides a time budget among problems whose times differ by a factor of a million.

/// The part of the remaining time that a point may take. skip: the point is left out, since not even its least time
/// fits beside those of other points.
struct TimeShare {
  bool skip = false;
  double seconds = 0;
};

/// `least`: the least times of the points still to come [s], the next one first. If the sum of the least times fits
/// into `rest`, the next point gets its least time and an equal share of what is left over. If the sum does not fit,
/// the longest points are skipped until the others fit, and the next point gets only its least time, or is itself
/// skipped. If the next point's least time is more than an equal part of `rest`, the sum must fit into half of `rest`,
/// since the prediction for a long point may be far too short. Cost: O(n log n).
TimeShare share_out(core::Seconds rest, std::span<const double> least);

/// For each kind of work, the factor by which it takes longer here than predicted: a moving mean of measured ratios.
/// The mean starts from a guess, since the first measurement of a kind includes one-time costs.
class Slowness {
 public:
  explicit Slowness(double guess) : guess_(guess) {}
  void learn(const std::string& kind, double ratio);
  double of(const std::string& kind) const;

 private:
  double guess_;
  std::map<std::string, double> ratios_;
};

}  // namespace gradmeter::bench
