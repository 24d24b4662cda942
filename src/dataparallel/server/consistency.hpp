// SPDX-License-Identifier: Apache-2.0
// The rules that say at which clock a worker may read, and when updates are applied. They have neither messages nor
// time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"

namespace gradmeter::dataparallel {

/// A worker's clock is the number of its updates that the server has. A read at clock c needs at least c - staleness
/// updates of every worker that still trains. Staleness 0 is bulk synchronous (BSP), `unbounded` is asynchronous (ASP),
/// and values between them are stale synchronous parallel (SSP).
/// Cost: a query O(1), a change O(workers).
/// Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013.
class Admission {
 public:
  static constexpr std::uint64_t unbounded = std::numeric_limits<std::uint64_t>::max();

  Admission(int workers, std::uint64_t staleness);
  std::uint64_t staleness() const { return staleness_; }
  /// With staleness 0 all updates of one clock are collected and applied as one.
  bool grouped() const { return staleness_ == 0; }

  /// Says that the server has one more update of that worker.
  void pushed(int worker);
  /// Says that the worker has finished or died: its clock then counts as infinite, so that reads do not wait for it.
  void gone(int worker);

  std::uint64_t clock(int worker) const { return clocks_[static_cast<std::size_t>(worker)]; }
  bool is_gone(int worker) const { return gone_[static_cast<std::size_t>(worker)]; }
  /// The least clock of the workers that still train; `unbounded` when none does.
  std::uint64_t slowest() const { return slowest_; }
  int training() const { return training_; }
  bool all_train() const { return training_ == static_cast<int>(clocks_.size()); }

  /// True where that worker may read at `clock`; the weights must include its own first `own` updates.
  bool may_read(int worker, std::uint64_t clock, std::uint64_t own) const;
  /// The number of clocks by which a reader at this clock is ahead of the slowest worker.
  std::uint64_t gap(std::uint64_t clock) const { return clock > slowest_ ? clock - slowest_ : 0; }

 private:
  void find_slowest();

  std::vector<std::uint64_t> clocks_;  ///< by worker
  std::vector<bool> gone_;             ///< by worker
  std::uint64_t staleness_, slowest_;
  int training_;
};

/// Counts, over all workers, the updates that were applied between a worker's read and its own update. It counts while
/// all workers train.
/// If every worker reads right after its own update, the counts add up to workers - 1 for each update, at any speeds:
/// each update is applied once between the read and the update of every other worker. So over any n updates
///   sum + outstanding() = (workers - 1)·n
/// where `outstanding` is the same count for updates that are still under way. The mean is workers - 1 over any cycle
/// after which `outstanding` has the same value again.
class StalenessCount {
 public:
  explicit StalenessCount(int workers) : read_(static_cast<std::size_t>(workers), 0) {}
  /// Notes the version of the weights that the worker's next update will be computed from.
  void read(int worker, std::uint64_t version) { read_[static_cast<std::size_t>(worker)] = version; }
  /// Notes that an update computed from version `base` is applied at `version`.
  void applied(std::uint64_t base, std::uint64_t version);
  std::uint64_t outstanding(std::uint64_t version) const;
  const std::vector<std::uint64_t>& histogram() const { return histogram_; }

 private:
  std::vector<std::uint64_t> read_, histogram_;
};

// The rules by which a server makes steps of the weights from changes, when it does not wait for all workers.

/// The scale of a change. mean: the step of a single change is divided by the number of workers, and changes that are
/// added up are replaced by their mean. sum: no scaling. staleness: the step of a single change is divided by its
/// staleness, the number of updates that it missed, except for the first change.
enum class ChangeScale : std::uint8_t { mean, sum, staleness };

/// Delay compensation (Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", ICML 2017):
/// from a gradient g at weights r, the gradient at the current weights w is estimated as g + lambda·g⊙g⊙(w − r).
/// adaptive: the lambda of each element is divided by √(m + 1e-7), where m = decay·m + (1 − decay)·g² (DC-ASGD-a).
struct CompensationPlan {
  float lambda = 0.04f;
  bool adaptive = false;
  float decay = 0.95f;
};

/// Says which changes make one step, and how far the step goes.
struct StepRule {
  ChangeScale scale = ChangeScale::mean;
  /// n-softsync: a step is made as soon as there are as many changes as an n-th of the workers. It is their mean, with
  /// an n-th of the size. 0: every change makes a step.
  int softsync = 0;
  /// Only changes that were computed from the current weights count. Once those of all workers but `backups` are there,
  /// they make a step; other changes are dropped. A worker's read waits until there are newer weights than those from
  /// which its last change was computed.
  bool fresh_only = false;
  int backups = 0;
  std::optional<CompensationPlan> compensation = {};

  /// The number of changes that make one step.
  int group(int workers) const {
    if (fresh_only) return std::max(1, workers - backups);
    return softsync > 0 ? std::max(1, workers / softsync) : 1;
  }
};

/// Keeps the weights and means that compensation needs for one chunk of n elements. Memory: 4n bytes for each worker
/// that reads, and 8n more, or 12n if it is adaptive.
class DelayCompensation {
 public:
  /// first: the weights that all workers begin with.
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
  std::vector<std::vector<float>> read_;  ///< by worker; empty: the worker has read nothing since the first weights
  std::vector<float> mean_square_, out_;
};

}  // namespace gradmeter::dataparallel
