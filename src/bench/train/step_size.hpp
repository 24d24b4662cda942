// SPDX-License-Identifier: Apache-2.0
// Rules for the step size: how it grows with the global batch, and how it falls over a run.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace gradmeter::bench {

/// A step's position in a run. All epochs have equally many steps.
struct TrainingMoment {
  std::size_t step = 0;         ///< from 0
  std::size_t epoch_steps = 1;  ///< number of steps of an epoch
  std::size_t steps = 1;        ///< number of steps of the whole run
  std::size_t batch = 1;        ///< global batch [samples]
};

/// One of the rules. parameters: the names of its parameters with their defaults, "batch=64"; empty: none. rule: its
/// formula. source: the publication, or "-".
struct StepSizeRuleInfo {
  std::string_view name, parameters, rule, source;
};
std::span<const StepSizeRuleInfo> step_size_rules();

/// The rules that a user named: one that scales with the batch, one that acts over the run, or both:
/// "linear:batch=64+cosine".
class StepSizeRule {
 public:
  /// Errors: UsageError for an unknown name or parameter, or two rules of one kind.
  explicit StepSizeRule(std::string_view text = "constant");
  const std::string& name() const { return name_; }  ///< canonical
  /// The step size `base`, scaled for the batch.
  double scaled(double base, std::size_t batch) const;
  /// The step size at this moment. During the first `warmup_epochs` it grows linearly to the scaled size: from `base`
  /// if a rule scales with the batch (the gradual warm-up of Goyal et al. 2017, section 2.2), else from 0. After that,
  /// a rule over the run lowers it such that it would be 0 at the step after the last one.
  float at(const TrainingMoment&, double base, double warmup_epochs) const;

 private:
  enum class Scaling { none, linear, square_root };
  enum class Course { constant, cosine };
  Scaling scaling_ = Scaling::none;
  Course course_ = Course::constant;
  double reference_batch_ = 1;
  std::string name_;
};

}  // namespace gradmeter::bench
