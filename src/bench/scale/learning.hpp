// How well a point learns: its accuracy after as many samples as all others, and after as much time.
#pragma once
#include "bench/scale/curve.hpp"

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

/// Trains anew, with the strategy's usual optimizer and step size. Collective over `c`.
/// Errors: Interrupted.
Learned learn(Session&, const runtime::Communicator& c, const model::DataSplit&, const TrainingConfig&,
              const LearningPlan&);

}  // namespace gradmeter::bench
