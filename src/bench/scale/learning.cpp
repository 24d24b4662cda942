// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/learning.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compression/codecs/dgc.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

namespace gradmeter::bench {
namespace {

std::size_t steps_in(double seconds, double step_s) {
  if (!(step_s > 0) || !std::isfinite(seconds / step_s)) return 1;
  return std::max<std::size_t>(1, static_cast<std::size_t>(seconds / step_s));
}

template <class StepSizeAt>
void train_until(Session& s, const runtime::Communicator& c, Training& t, std::size_t& step, std::size_t end,
                 const StepSizeAt& step_size_at) {
  constexpr std::size_t steps_between_checks = 128;
  for (; step < end; ++step) {
    t.step(step, step_size_at(step));
    if (step % steps_between_checks != steps_between_checks - 1) continue;
    t.quiesce();
    s.stop_if_interrupted(c);
  }
}

}  // namespace

LearningPlan plan_learning(std::size_t samples, std::size_t batch_global, std::size_t control_batch, double step_s,
                           double control_s) {
  const double time = control_s * static_cast<double>(samples) / static_cast<double>(control_batch);
  return {.steps_for_samples = std::max<std::size_t>(1, samples / batch_global),
          .steps_for_time = steps_in(time, step_s)};
}

LearningConfig learning_config(TrainingConfig config, std::size_t batch_global, const LearningRule& rule) {
  const auto& usual = config.strategy->info();
  const bool has_momentum = config.codec && compression::momentum_of(*config.codec) > 0;
  config.optimizer = usual.optimizer.empty() || has_momentum ? "sgd" : std::string(usual.optimizer);
  config.step_size = usual.step_size;
  const std::string base = core::parse_name(config.optimizer).base;
  const bool is_adaptive = base == "adam" || base == "adamw" || base == "lamb";
  const std::string_view by_optimizer = usual.optimizer.empty() ? "constant" : is_adaptive ? "sqrt" : "linear";
  LearningConfig out{.training = std::move(config),
                     .step_rule = rule.step_rule ? *rule.step_rule : StepSizeRule(by_optimizer)};
  out.batch = out.training.strategy->communicates() ? batch_global : out.training.batch_per_rank;
  const double size = static_cast<double>(out.training.step_size), scaled = out.step_rule.scaled(size, out.batch);
  out.text = fmt::format("{}, lr {:.3g}, {} to {:.3g}, warm-up {:.3g} epochs",
                         usual.optimizer.empty() ? usual.name : std::string_view(out.training.optimizer), size,
                         out.step_rule.name(), scaled, rule.warmup_epochs);
  return out;
}

Learned learn(Session& s, const runtime::Communicator& c, const model::DataSplit& data, const LearningConfig& config,
              double warmup_epochs, const LearningPlan& plan) {
  Training training(s, c, data, config.training);
  const std::size_t first = std::min(plan.steps_for_samples, plan.steps_for_time),
                    last = std::max(plan.steps_for_samples, plan.steps_for_time);
  const auto step_size_at = [&](std::size_t at) {
    return config.step_rule.at(
        {.step = at, .epoch_steps = training.steps_per_epoch(), .steps = last, .batch = config.batch},
        static_cast<double>(config.training.step_size), warmup_epochs);
  };
  Learned learned;
  std::size_t step = 0;
  const bool samples_first = plan.steps_for_samples <= plan.steps_for_time;
  train_until(s, c, training, step, first, step_size_at);
  (samples_first ? learned.at_samples : learned.at_time) = training.validate().accuracy;
  train_until(s, c, training, step, last, step_size_at);
  (samples_first ? learned.at_time : learned.at_samples) = training.validate().accuracy;
  training.finish();
  return learned;
}

}  // namespace gradmeter::bench
