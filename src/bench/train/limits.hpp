// The physical limits that steps are compared with, measured in turn with them, on the same ranks at once.
#pragma once
#include <optional>
#include <span>

#include "bench/engine/link_probe.hpp"
#include "bench/train/operation_probe.hpp"
#include "core/result.hpp"

namespace gradmeter::bench {

/// A lower bound for any implementation: the longer of its operations and its exchange, since perfect overlap hides the
/// other.
struct StepBound {
  bool is_known = true;      ///< else there is none to compare a time with
  core::Seconds compute{};   ///< the step's operations at the library's best
  core::Seconds roofline{};  ///< at the hardware's best: never more than `compute`
  core::Seconds exchange{};
  core::Machine machine{};  ///< flops_per_s: the slowest rank's best; links and ports where anything is exchanged

  core::Seconds seconds() const { return std::max(compute, exchange); }
  std::string_view name() const { return compute >= exchange ? "compute" : "link"; }
};
/// Limits, roofline and rates, where they are known. Status mistrusted where the row's time and its whole interval are
/// below its limit.
void fill_bound(const StepBound&, core::Point&);

/// What a point needs of the machine, for this rank.
struct StepDemand {
  std::vector<model::RepeatedProblem> operations = {};  ///< empty on ranks that only serve
  LeastSent least = {};                                 ///< the same on all ranks; zero where nothing is exchanged
  bool lock_step = true;  ///< a step lasts as long as its slowest rank's; else: as the harmonic mean of the ranks'
  bool exchanges() const { return least.rank > 0 || least.node > 0; }
};

/// All limits on one group of ranks with so many threads each. They are of the host: a device's steps have none.
class StepLimits {
 public:
  /// Collective over `c`, which must outlive it, as are all calls.
  StepLimits(Session& s, const runtime::Communicator& c, int threads)
      : session_(s), c_(c), threads_(threads), is_host_(&s.device() == &runtime::host_device()), operations_(threads) {}
  /// Takes a few milliseconds, more for new or long operations: all ranks compute, then all use the link.
  /// While nothing else moves.
  void round(const StepDemand&);
  /// From all rounds so far, one of which must have had this demand.
  StepBound bound(const StepDemand&) const;

 private:
  Session& session_;
  const runtime::Communicator& c_;
  int threads_;
  bool is_host_;
  OperationProbe operations_;
  std::optional<LinkProbe> link_;  ///< made when a demand first exchanges anything
};

}  // namespace gradmeter::bench
