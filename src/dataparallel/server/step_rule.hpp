// How a server turns changes into steps of the weights, where it does not wait for all workers.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataparallel/execution_context.hpp"

namespace gradmeter::dataparallel {

/// mean: a single change's step is divided by the workers, and of changes that are added up the mean is taken;
/// sum: neither; staleness: a single change's step is divided by the updates that it missed, but for the first.
enum class ChangeScale : std::uint8_t { mean, sum, staleness };

/// Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", ICML 2017: the gradient at the
/// current weights w is estimated from one at weights r as g + lambda·g⊙g⊙(w − r). adaptive: lambda of each element is
/// divided by √(m + 1e-7), where m = decay·m + (1 − decay)·g² (DC-ASGD-a).
struct CompensationPlan {
  float lambda = 0.04f;
  bool adaptive = false;
  float decay = 0.95f;
};

/// Which changes make one step, and how far it goes.
struct StepRule {
  ChangeScale scale = ChangeScale::mean;
  /// n-softsync: an n-th of the workers' number of changes, in the order of their coming, makes one step of their mean,
  /// of an n-th of the size. 0: every change makes one.
  int softsync = 0;
  /// Of changes that were computed from the current weights, all but so many workers' make one step; others are
  /// dropped. A worker's read waits until there are newer weights than its last change was computed from.
  bool fresh_only = false;
  int backups = 0;
  std::optional<CompensationPlan> compensation = {};

  /// How many changes make one step.
  int group(int workers) const {
    if (fresh_only) return std::max(1, workers - backups);
    return softsync > 0 ? std::max(1, workers / softsync) : 1;
  }
};

/// For one chunk. Memory: 4n bytes for each worker that reads, and 8n, adaptive 12n.
class DelayCompensation {
 public:
  /// first: what all workers begin with.
  DelayCompensation(const CompensationPlan&, int workers, std::span<const float> first);
  /// The worker's next change will be computed from these. Cost: 8 bytes an element.
  void read(ExecutionContext&, int worker, std::span<const float> weights);
  /// The gradient for the current weights; valid until the next call. Cost: 5 operations, 16 bytes an element.
  std::span<const float> compensated(ExecutionContext&, int worker, std::span<const float> gradient,
                                     std::span<const float> weights);

 private:
  const CompensationPlan plan_;
  const std::vector<float> first_;
  std::vector<std::vector<float>> read_;  ///< by worker; empty: it has read nothing since the first
  std::vector<float> mean_square_, out_;
};

}  // namespace gradmeter::dataparallel
