// SPDX-License-Identifier: Apache-2.0
// A layer's gradients against central differences of its definition in float64.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "core/random.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/threads.hpp"
#include "model/layer_run.hpp"

namespace gradmeter::model {

using Doubles = std::vector<double>;
/// Outputs by a definition, from the parameters by tensor and the inputs.
using Definition = std::function<Doubles(const std::vector<Doubles>& parameters, const Doubles& input)>;

inline Doubles widened(const std::vector<float>& x) { return {x.begin(), x.end()}; }

/// Σ output·δ, of which a layer's backward pass gives the gradients.
inline double weighted_sum(const Doubles& output, const std::vector<float>& delta) {
  double sum = 0;
  for (std::size_t i = 0; i < output.size(); ++i) sum += output[i] * double{delta[i]};
  return sum;
}

/// Some elements of each gradient, each against the slope of the definition.
inline void expect_slopes(const Layer& layer, std::size_t samples, const Definition& define, std::uint64_t seed) {
  const LayerRun run(layer, samples);
  std::vector<Doubles> parameters;
  for (const auto& p : run.parameters) parameters.push_back(widened(p));
  Doubles input = widened(run.input);
  const Doubles output = define(parameters, input);
  ASSERT_EQ(output.size(), run.output.size());
  for (std::size_t i = 0; i < output.size(); ++i)
    ASSERT_NEAR(run.output[i], output[i], 1e-4 * (1 + std::fabs(output[i]))) << layer.name() << " output " << i;

  const core::Random random(seed, 0x6364);
  const auto compare = [&](Doubles& of, const std::vector<float>& gradient, const std::string& what) {
    double largest = 0;
    for (const float g : gradient) largest = std::max(largest, double{std::fabs(g)});
    constexpr std::size_t compared = 15;
    for (std::size_t k = 0; k < compared; ++k) {
      constexpr double h = 1e-6;
      const std::size_t at = random.below(k, of.size());
      const double before = of[at];
      of[at] = before + h;
      const double above = weighted_sum(define(parameters, input), run.output_gradient);
      of[at] = before - h;
      const double below = weighted_sum(define(parameters, input), run.output_gradient);
      of[at] = before;
      EXPECT_NEAR(gradient[at], (above - below) / (2 * h), 2e-5 * largest + 1e-7)
          << layer.name() << ", " << samples << " samples, " << what << " " << at;
    }
  };
  for (std::size_t t = 0; t < parameters.size(); ++t)
    compare(parameters[t], run.gradients[t], std::string(layer.tensors()[t].name));
  compare(input, run.input_gradient, "input");
}

/// Numbers from 1 on that a case draws one after another.
class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : random_(seed, 0x7368) {}
  std::size_t operator()(std::size_t most) { return 1 + random_.below(next_++, most); }

 private:
  core::Random random_;
  std::uint64_t next_ = 0;
};

class CentralDifferences : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override {
    kernels::set_compute_threads(1);
    if (!kernels::onednn_refusal().empty()) GTEST_SKIP() << kernels::onednn_refusal();
  }
};

}  // namespace gradmeter::model
