#include "bench/scale/learning.hpp"

#include <algorithm>
#include <cmath>

namespace gradmeter::bench {
namespace {

std::size_t steps_in(double seconds, double step_s) {
  if (!(step_s > 0) || !std::isfinite(seconds / step_s)) return 1;
  return std::max<std::size_t>(1, static_cast<std::size_t>(seconds / step_s));
}

void train_until(Session& s, const runtime::Communicator& c, Training& t, std::size_t& step, std::size_t end) {
  constexpr std::size_t steps_between_checks = 128;
  for (; step < end; ++step) {
    t.step(step);
    if (step % steps_between_checks != steps_between_checks - 1) continue;
    t.quiesce();
    s.stop_if_interrupted(c);
  }
}

}  // namespace

LearningPlan plan_learning(std::size_t samples, std::size_t batch_global, std::size_t control_batch, double step_s,
                           double control_s) {
  const double time = control_s * static_cast<double>(samples) / static_cast<double>(control_batch);
  return {.at_samples = std::max<std::size_t>(1, samples / batch_global), .at_time = steps_in(time, step_s)};
}

Learned learn(Session& s, const runtime::Communicator& c, const model::DataSplit& data, const TrainingConfig& asked,
              const LearningPlan& plan) {
  TrainingConfig config = asked;
  const auto& usual = config.strategy->info();
  if (!usual.optimizer.empty()) config.optimizer = usual.optimizer;
  config.step_size = usual.step_size;
  Training training(s, c, data, config);
  Learned learned;
  std::size_t step = 0;
  const bool samples_first = plan.at_samples <= plan.at_time;
  train_until(s, c, training, step, std::min(plan.at_samples, plan.at_time));
  (samples_first ? learned.at_samples : learned.at_time) = training.validate().accuracy;
  train_until(s, c, training, step, std::max(plan.at_samples, plan.at_time));
  (samples_first ? learned.at_time : learned.at_samples) = training.validate().accuracy;
  training.finish();
  return learned;
}

}  // namespace gradmeter::bench
