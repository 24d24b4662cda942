// SPDX-License-Identifier: Apache-2.0
// A wrong term makes the score of rows worse that were left out. It is planted after the fit: where it is there
// already, a fit makes up for it by other terms.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <vector>

#include "predict/fit.hpp"
#include "predict/score.hpp"

namespace gradmeter::predict {
namespace {

std::vector<TrainingStep> rows_of(const std::string& name) {
  const std::string path = std::string(GRADMETER_PREDICT_DATA) + "/" + name;
  std::ifstream in(path, std::ios::binary);
  std::vector<TrainingStep> out;
  const std::string text(std::istreambuf_iterator<char>(in), {});
  for (auto& s : read_measured_steps(text, path))
    if (s.step_s > 0 && s.expert == 1 && TransformerStep::refusal(s).empty()) out.push_back(std::move(s));
  return out;
}

struct Fault {
  std::function<void(core::DeviceProfile&)> device = [](core::DeviceProfile&) {};
  std::function<void(StepParts&)> parts = [](StepParts&) {};
};

Terms terms_of(std::span<const double> logs) {
  Terms t;
  for (std::size_t i = 0; i < term_count; ++i) t.values[i] = std::exp(logs[i]);
  return t;
}

/// Mean error in percent: each half of the groups is predicted by a fit to the other half.
double error_of(const std::vector<TrainingStep>& rows, const Fault& fault) {
  std::map<std::string, std::size_t> groups;
  for (const auto& s : rows) groups.try_emplace(group_of(s), groups.size());
  double sum = 0;
  for (const std::size_t half : {0, 1}) {
    std::vector<Residual> residuals;
    std::vector<std::function<double(const Terms&)>> left;
    core::Machine machine;
    for (const auto& s : rows) {
      machine = machine_of(s).machine.value();
      core::Machine wrong = machine;
      fault.device(wrong.device.value());
      if (groups[group_of(s)] % 2 == half) {
        left.emplace_back([step = TransformerStep(s, wrong), measured = s.step_s, &fault](const Terms& t) {
          StepParts p = step.parts(t);
          fault.parts(p);
          return p.step() / measured;
        });
      } else {
        residuals.emplace_back([step = TransformerStep(s, machine), measured = s.step_s](std::span<const double> x) {
          return std::log(step.seconds(terms_of(x)) / measured);
        });
      }
    }
    const Terms fitted = terms_of(fit_terms(priors_of(machine, rows.front()), residuals));
    for (const auto& ratio : left) sum += 100 * std::abs(ratio(fitted) - 1);
  }
  return sum / static_cast<double>(rows.size());
}

TEST(WrongTerm, APipelineWithThriceItsBubbleScoresWorse) {
  const auto rows = rows_of("bigscience.csv");
  EXPECT_GT(error_of(rows, {.parts = [](StepParts& p) { p.pipeline_wait *= 3; }}), 1.2 * error_of(rows, {}));
}

TEST(WrongTerm, TensorParallelismWithThriceItsAllReduceScoresWorse) {
  const auto rows = rows_of("vtrain_single.csv");
  EXPECT_GT(error_of(rows, {.parts = [](StepParts& p) { p.tensor_exchange *= 3; }}), 1.2 * error_of(rows, {}));
}

TEST(WrongTerm, LoopsWithThriceTheirTrafficScoreWorse) {
  const auto rows = rows_of("vtrain_single.csv");
  EXPECT_GT(error_of(rows, {.device = [](core::DeviceProfile& d) { d.memory_bytes_per_s /= 3; }}),
            1.2 * error_of(rows, {}));
}

}  // namespace
}  // namespace gradmeter::predict
