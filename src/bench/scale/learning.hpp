// SPDX-License-Identifier: Apache-2.0
// Trains a point, to compare how well points learn: measures its accuracy after a given number of samples, and after a
// given time.
#pragma once
#include <optional>
#include <string>

#include "bench/engine/session.hpp"
#include "bench/train/step_size.hpp"
#include "bench/train/training.hpp"
#include "model/data/dataset.hpp"

namespace gradmeter::bench {

/// The numbers of steps after which accuracy is measured.
struct LearningPlan {
  std::size_t steps_for_samples = 1, steps_for_time = 1;
};
struct Learned {
  double at_samples = 0, at_time = 0;  ///< accuracies
};

/// The plan for a point whose step takes `step_s` [s]. steps_for_samples: the steps that it needs for `samples`
/// samples. steps_for_time: the steps that it makes while the control, whose step takes `control_s` [s], trains on
/// `samples` samples.
LearningPlan plan_learning(std::size_t samples, std::size_t batch_global, std::size_t control_batch, double step_s,
                           double control_s);

/// The rule that scales the strategy's usual step size, which is for a batch of 64; `train --lr-rule` takes the same
/// rules.
struct LearningRule {
  std::optional<StepSizeRule> step_rule = {};  ///< empty: `learning_config` chooses one
  double warmup_epochs = 0.1;
};

/// A training with its step sizes, and a text that describes them.
struct LearningConfig {
  TrainingConfig training;
  StepSizeRule step_rule;
  /// The batch by which the step size is scaled: the batch of all workers together; with `independent`, where each
  /// worker learns alone, the batch of one worker.
  std::size_t batch = 1;
  std::string text = {};  ///< "momentum:mu=0.9, lr 0.01, linear:batch=64 to 0.04, warm-up 0.1 epochs"
};
/// Takes the strategy's usual step size and optimizer, but sgd if the codec has momentum of its own. If no rule is
/// asked for, the step size is linear in the batch, or with optimizers like Adam in its square root (Krizhevsky 2014;
/// Hoffer et al. 2017; Malladi et al., NeurIPS 2022). For strategies without gradients it is constant.
LearningConfig learning_config(TrainingConfig, std::size_t batch_global, const LearningRule&);

/// Builds a training and runs it by the plan. Collective over `c`. Errors: Interrupted.
Learned learn(Session&, const runtime::Communicator& c, const model::DataSplit&, const LearningConfig&,
              double warmup_epochs, const LearningPlan&);

}  // namespace gradmeter::bench
