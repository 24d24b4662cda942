// SPDX-License-Identifier: Apache-2.0
// How well a point learns: its accuracy after as many samples as all others, and after as much time.
#pragma once
#include <optional>
#include <string>

#include "bench/engine/session.hpp"
#include "bench/train/step_size.hpp"
#include "bench/train/training.hpp"
#include "model/data/dataset.hpp"

namespace gradmeter::bench {

/// Steps after which the accuracy is taken.
struct LearningPlan {
  std::size_t at_samples = 1, at_time = 1;
};
struct Learned {
  double at_samples = 0, at_time = 0;  ///< accuracies
};

/// The plan for a point whose step takes `step_s`, when the control's takes `control_s`: equal time is what the control
/// takes for `samples`.
LearningPlan plan_learning(std::size_t samples, std::size_t batch_global, std::size_t control_batch, double step_s,
                           double control_s);

/// How large steps are: the strategy's usual size, which is for a batch of 64, by a rule as `train --lr-rule` takes it.
struct LearningRule {
  std::optional<StepSizeRule> step_rule = {};  ///< empty: by the optimizer, see `learning_config`
  double warmup_epochs = 0.1;
};

/// A training with its step sizes, and the same in words.
struct LearningConfig {
  TrainingConfig training;
  StepSizeRule step_rule;
  std::size_t batch =
      1;  ///< that scales the step: all workers' together; of `independent`, whose workers learn alone, one's
  std::string text = {};  ///< "momentum:mu=0.9, lr 0.01, linear:batch=64 to 0.04, warm-up 0.1 epochs"
};
/// With the strategy's usual optimizer (sgd beside a codec with momentum) and step size. Where no rule is asked for it
/// is linear in the batch, with Adam's family the square root (Krizhevsky 2014; Hoffer et al. 2017; Malladi et al.,
/// NeurIPS 2022), and none for strategies without gradients.
LearningConfig learning_config(TrainingConfig, std::size_t batch_global, const LearningRule&);

/// Trains anew. Collective over `c`. Errors: Interrupted.
Learned learn(Session&, const runtime::Communicator& c, const model::DataSplit&, const LearningConfig&,
              double warmup_epochs, const LearningPlan&);

}  // namespace gradmeter::bench
