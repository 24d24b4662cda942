// SPDX-License-Identifier: Apache-2.0
// The numbers: loss, hits and gradients against references.
#include "support/mlp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/format.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "model/mlp_net.hpp"
#include "support/accuracy.hpp"

namespace gradmeter::model {
namespace {

/// The network by its definition in float64, on parameters that need not be floats.
struct Reference {
  double loss_sum = 0, nearest_kink = std::numeric_limits<double>::infinity();
  std::size_t correct = 0;
};

Reference reference(const Mlp& mlp, const Widths& widths, const std::vector<double>& parameters, const Data& data) {
  Reference result;
  const std::size_t layers = widths.size() - 1;
  for (std::size_t s = 0; s < data.labels.size(); ++s) {
    std::vector<double> x(data.inputs.begin() + std::ptrdiff_t(s * widths[0]),
                          data.inputs.begin() + std::ptrdiff_t((s + 1) * widths[0]));
    for (std::size_t l = 0; l < layers; ++l) {
      const Tensor& w = mlp.tensors()[2 * (layers - 1 - l)];
      const Tensor& b = mlp.tensors()[2 * (layers - 1 - l) + 1];
      std::vector<double> y(widths[l + 1]);
      for (std::size_t o = 0; o < y.size(); ++o) {
        y[o] = parameters[b.offset + o];
        for (std::size_t i = 0; i < x.size(); ++i) y[o] += parameters[w.offset + o * x.size() + i] * x[i];
        if (l + 1 == layers) continue;
        result.nearest_kink = std::min(result.nearest_kink, std::abs(y[o]));
        y[o] = std::max(y[o], 0.0);
      }
      x = std::move(y);
    }
    const double largest = std::ranges::max(x);
    double sum = 0;
    for (const double logit : x) sum += std::exp(logit - largest);
    const auto label = static_cast<std::size_t>(data.labels[s]);
    result.loss_sum += std::log(sum) + largest - x[label];
    result.correct += std::ranges::max_element(x) - x.begin() == std::ptrdiff_t(label) ? 1 : 0;
  }
  return result;
}

/// Central differences of the float64 reference's mean loss.
std::vector<float> slopes(const Net& net, const Widths& widths, const Data& data) {
  constexpr double h = 1e-5;
  std::vector<double> p(net.parameters.begin(), net.parameters.end());
  EXPECT_GT(reference(net.mlp, widths, p, data).nearest_kink, 100 * h) << "a ReLU's kink is too near for differences";
  std::vector<float> result(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double at = p[i];
    p[i] = at + h;
    const double up = reference(net.mlp, widths, p, data).loss_sum;
    p[i] = at - h;
    const double down = reference(net.mlp, widths, p, data).loss_sum;
    p[i] = at;
    result[i] = static_cast<float>((up - down) / (2 * h) / double(data.labels.size()));
  }
  return result;
}

class MlpGradient : public testing::TestWithParam<Widths> {};

TEST_P(MlpGradient, IsTheSlopeOfTheReferencesLoss) {
  const Widths& widths = GetParam();
  Net net(widths);
  const Data data = random_data(3, widths.front(), widths.back());
  net.step(data.batch());
  const std::vector<float> expected = slopes(net, widths, data);
  EXPECT_LE(test::relative_error(net.gradients, expected), 1e-6);
  // The same check must see one wrong element.
  Floats wrong = net.gradients;
  wrong[net.mlp.tensors().back().offset] += 0.01F;
  EXPECT_GT(test::relative_error(wrong, expected), 1e-4);
}
INSTANTIATE_TEST_SUITE_P(Shapes, MlpGradient,
                         testing::Values(Widths{5, 7, 4}, Widths{5, 4}, Widths{6, 5, 3, 2}, Widths{3, 17, 16, 15, 10}),
                         [](const auto& instance) { return fmt::format("w{}", fmt::join(instance.param, "x")); });

TEST(Mlp, TheLossAndTheHitsAreTheReferences) {
  const Widths widths{20, 30, 10};
  Net net(widths);
  const Data data = random_data(50, 20, 10);
  const Outcome got = net.mlp.forward(net.queue, net.buffers(), data.batch()).get();
  const Reference want = reference(net.mlp, widths, {net.parameters.begin(), net.parameters.end()}, data);
  EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-6 * want.loss_sum);
  EXPECT_EQ(got.correct, want.correct);
  EXPECT_EQ(got.labels, 50U);
}

TEST(Mlp, WithZeroParametersEachSampleLosesTheLogarithmOfTheClasses) {
  Net net({20, 30, 10});
  std::ranges::fill(net.parameters, 0.0F);
  const Data data = random_data(50, 20, 10);
  const Outcome got = net.mlp.forward(net.queue, net.buffers(), data.batch()).get();
  EXPECT_NEAR(got.loss_sum, 50 * std::log(10.0), 1e-9);
  EXPECT_EQ(got.correct, std::size_t(std::ranges::count(data.labels, 0)));
}

TEST(Mlp, TwoHalfBatchesAverageToTheWholeOne) {
  Net net({20, 30, 10});
  const Data data = random_data(32, 20, 10);
  net.step(data.batch());
  const Floats whole = net.gradients;
  Floats average(whole.size());
  for (const std::size_t first : {0, 16}) {
    net.step(data.part(first, 16));
    for (std::size_t i = 0; i < average.size(); ++i) average[i] += 0.5F * net.gradients[i];
  }
  EXPECT_LE(test::relative_error(average, whole), 1e-6);
  EXPECT_GT(test::relative_error(net.gradients, whole), 0.1) << "one half alone must not be taken for the whole";
}

TEST(Mlp, LearnsAnEasyRule) {
  Net net({4, 16, 2});
  Data data = random_data(64, 4, 2);
  for (std::size_t s = 0; s < 64; ++s) data.labels[s] = data.inputs[4 * s] > data.inputs[4 * s + 1] ? 1 : 0;
  const double before = net.step(data.batch()).loss_sum;
  Outcome last;
  for (int step = 0; step < 200; ++step) {
    last = net.step(data.batch());
    kernels::sgd(net.parameters, net.gradients, 0.5F);
  }
  EXPECT_LT(last.loss_sum, 0.1 * before);
  EXPECT_GE(last.correct, 63U);
}

}  // namespace
}  // namespace gradmeter::model
