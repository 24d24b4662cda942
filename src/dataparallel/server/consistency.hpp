// SPDX-License-Identifier: Apache-2.0
// The rules of a parameter server: when a worker may read the weights, and how changes are applied. The rules involve
// neither messages nor times.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"

namespace gradmeter::dataparallel {

/// Decides which reads are admitted. A worker's clock is the number of its updates that the server has. A read at clock
/// c is admitted when the server has at least c - staleness updates of every worker that still trains. Staleness 0 is
/// bulk synchronous (BSP), `unbounded` is asynchronous (ASP), and values between are stale synchronous parallel (SSP).
/// Cost: a query O(1), a change O(workers).
/// Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013.
class Admission {
 public:
  static constexpr std::uint64_t unbounded = std::numeric_limits<std::uint64_t>::max();

  Admission(int workers, std::uint64_t staleness);
  std::uint64_t staleness() const { return staleness_; }
  /// True if staleness is 0: the updates of one clock, from all workers, are collected and applied as one.
  bool is_bulk_synchronous() const { return staleness_ == 0; }

  /// Says that the server has one more update of this worker.
  void note_push(int worker);
  /// Says that the worker has finished or died. Reads of other workers do not wait for it any more.
  void note_gone(int worker);

  std::uint64_t clock(int worker) const { return clocks_[static_cast<std::size_t>(worker)]; }
  bool is_gone(int worker) const { return gone_[static_cast<std::size_t>(worker)]; }
  /// The least clock of the workers that still train; `unbounded` when none does.
  std::uint64_t slowest_clock() const { return slowest_; }
  int training_workers() const { return training_; }
  bool all_train() const { return training_ == static_cast<int>(clocks_.size()); }

  /// True if a read of this worker at `clock` is admitted, and the server has the worker's first `own_updates` updates.
  bool may_read(int worker, std::uint64_t clock, std::uint64_t own_updates) const;
  /// The number of clocks by which a reader at this clock is ahead of the slowest worker.
  std::uint64_t gap(std::uint64_t clock) const { return clock > slowest_ ? clock - slowest_ : 0; }

 private:
  void find_slowest();

  std::vector<std::uint64_t> clocks_;  ///< by worker
  std::vector<bool> gone_;             ///< by worker
  std::uint64_t staleness_, slowest_;
  int training_;
};

/// Counts updates by their staleness. The staleness of an update is the number of updates, of any worker, that were
/// applied after the read of the weights from which it was computed and before the update itself. The caller counts
/// only while all workers train. If every worker reads right after its own update, the mean staleness is workers - 1,
/// whatever the workers' speeds: each update then lies between the read and the next update of every other worker, so
/// it adds 1 to the staleness of workers - 1 updates. More precisely, the staleness of the first n updates and
/// `outstanding` after the n-th update add up to (workers - 1)·n.
class StalenessCount {
 public:
  explicit StalenessCount(int workers) : read_(static_cast<std::size_t>(workers), 0) {}
  /// Notes the version of the weights that the worker's next update will be computed from.
  void read(int worker, std::uint64_t version) { read_[static_cast<std::size_t>(worker)] = version; }
  /// Notes that an update computed from version `base` is applied to version `version`.
  void applied(std::uint64_t base, std::uint64_t version);
  /// The sum of the staleness that the updates under way, one for each worker, have reached so far. version: the
  /// present version of the weights.
  std::uint64_t outstanding(std::uint64_t version) const;
  /// The number of updates by their staleness.
  const std::vector<std::uint64_t>& histogram() const { return histogram_; }

 private:
  std::vector<std::uint64_t> read_, histogram_;
};

// The rules by which servers without bulk synchrony make steps of the weights from the workers' changes.

/// Says how changes are scaled. mean: if a step is made from a single change, the step size is divided by the number of
/// workers; if from several, their mean is used. sum: changes are not scaled. staleness: if a step is made from a
/// single change, the step size is divided by the change's staleness (the number of updates applied since the worker's
/// read), or by 1 if that is 0; if from several, their mean is used.
enum class ChangeScale : std::uint8_t { mean, sum, staleness };

/// Delay compensation (Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", ICML 2017):
/// from a gradient g at weights r, the gradient at the current weights w is estimated as g + lambda·g⊙g⊙(w − r).
/// adaptive: the lambda of each element is divided by √(m + 1e-7), where m is the running mean of g²:
/// m = decay·m + (1 − decay)·g² (DC-ASGD-a).
struct CompensationPlan {
  float lambda = 0.04f;
  bool adaptive = false;
  float decay = 0.95f;
};

/// Says which changes make one step, and how large the step is.
struct StepRule {
  ChangeScale scale = ChangeScale::mean;
  /// The n of n-softsync: a step is made as soon as there are workers/n changes, from their mean and with 1/n of the
  /// step size. With fewer workers than n every change makes a step, with 1/workers of the step size. By convention 0
  /// means that every change makes a step.
  int softsync = 0;
  /// Only changes that were computed from the current weights are used; others are dropped. A step is made as soon as
  /// all workers but `backups` of them have sent such a change. A worker's read waits until the weights are newer than
  /// those from which the worker's last change was computed.
  bool fresh_only = false;
  int backups = 0;
  std::optional<CompensationPlan> compensation = {};

  /// The number of steps that n-softsync makes when each worker sends one change; 0: the rule is not n-softsync.
  int softsync_steps(int workers) const { return std::min(softsync, workers); }
  /// The number of changes that make one step.
  int changes_per_step(int workers) const {
    if (fresh_only) return std::max(1, workers - backups);
    return softsync > 0 ? std::max(1, workers / softsync) : 1;
  }
};

/// Compensates the changes of one chunk of n elements for delay. It keeps the weights that each worker has read.
/// Memory: 4n bytes for each worker that has read, and 8n bytes besides (12n if adaptive).
class DelayCompensation {
 public:
  /// first: the weights with which all workers begin.
  DelayCompensation(const CompensationPlan&, int workers, std::span<const float> first);
  /// Notes the weights from which the worker's next change will be computed. Cost: 8 bytes an element.
  void read(ExecutionContext&, int worker, std::span<const float> weights);
  /// Estimates the gradient for the current weights; the result is valid until the next call. Cost: 5 operations, 16
  /// bytes an element.
  std::span<const float> compensated(ExecutionContext&, int worker, std::span<const float> gradient,
                                     std::span<const float> weights);

 private:
  const CompensationPlan plan_;
  const std::vector<float> first_;
  std::vector<std::vector<float>> read_;  ///< by worker: the weights read last; empty: still `first_`
  std::vector<float> mean_square_, out_;
};

}  // namespace gradmeter::dataparallel
