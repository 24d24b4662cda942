// SPDX-License-Identifier: Apache-2.0
// Each layer's forward and backward pass against the definitions in float64.
#include "model/layers/layer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "kernels/conv/reference.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/lns/lns.hpp"
#include "kernels/op.hpp"
#include "kernels/rnn/reference.hpp"
#include "model/layer_run.hpp"
#include "model/layers/layers.hpp"

namespace gradmeter::model {
namespace {

void expect_near(const std::vector<float>& found, const std::vector<double>& wanted, const char* what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  double size = 0, off = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    size = std::max(size, std::fabs(wanted[i]));
    off = std::max(off, std::fabs(found[i] - wanted[i]));
  }
  EXPECT_LE(off, 1e-5 * size) << what;
}

class Layers : public testing::Test {
 protected:
  void SetUp() override {
    kernels::set_compute_threads(1);
    if (!kernels::onednn_refusal().empty()) GTEST_SKIP() << kernels::onednn_refusal();
  }
};

TEST_F(Layers, AConvolutionHasTheOutputsAndGradientsOfItsDefinition) {
  constexpr std::size_t samples = 3;
  const auto layer = make_convolution_layer({.channels = 5, .height = 9, .width = 8},
                                            {.filters = 19, .side = 3, .stride = 2, .pad = 1});
  const LayerRun run(*layer, samples);
  const kernels::ConvShape s{.width = 8,
                             .height = 9,
                             .channels = 5,
                             .batch = samples,
                             .filters = 19,
                             .filter_width = 3,
                             .filter_height = 3,
                             .pad_width = 1,
                             .pad_height = 1,
                             .stride_width = 2,
                             .stride_height = 2};
  const std::size_t pixels = s.out_width() * s.out_height();
  std::vector<double> output, filters, bias(19), input;
  std::vector<float> delta = run.output_gradient;
  for (std::size_t i = 0; i < run.output.size(); ++i) {
    const std::size_t channel = i / pixels % 19;
    const double sum =
        kernels::conv_at(s, kernels::Pass::forward, run.input, run.parameters[0], i).value + run.parameters[1][channel];
    output.push_back(std::max(sum, 0.0));
    if (sum <= 0) delta[i] = 0;
    bias[channel] += delta[i];
  }
  for (std::size_t i = 0; i < run.gradients[0].size(); ++i)
    filters.push_back(kernels::conv_at(s, kernels::Pass::backward_weights, run.input, delta, i).value);
  for (std::size_t i = 0; i < run.input.size(); ++i)
    input.push_back(kernels::conv_at(s, kernels::Pass::backward_data, delta, run.parameters[0], i).value);
  expect_near(run.output, output, "output");
  expect_near(run.gradients[0], filters, "filters");
  expect_near(run.gradients[1], bias, "bias");
  expect_near(run.input_gradient, input, "input");
  EXPECT_EQ(run.ready, (std::vector<std::size_t>{0, 1, 0, 1}));
}

class RecurrentLayers : public Layers, public testing::WithParamInterface<std::pair<kernels::Cell, RecurrentOutput>> {};

/// [samples × steps × h] to [steps × samples × h], as the reference has them.
std::vector<double> by_steps(const std::vector<float>& x, std::size_t samples, std::size_t steps, std::size_t h) {
  std::vector<double> out(x.size());
  for (std::size_t n = 0; n < samples; ++n)
    for (std::size_t t = 0; t < steps; ++t)
      for (std::size_t i = 0; i < h; ++i) out[(t * samples + n) * h + i] = x[(n * steps + t) * h + i];
  return out;
}

TEST_P(RecurrentLayers, HaveTheOutputsAndGradientsOfTheirDefinition) {
  constexpr std::size_t samples = 3, steps = 5, h = 21, features = 13;
  const auto [cell, kind] = GetParam();
  const bool every = kind == RecurrentOutput::every_step;
  const auto layer = make_recurrent_layer(cell, {.steps = steps, .features = features}, h, kind);
  const LayerRun run(*layer, samples);
  kernels::RnnInputs in{cell, h, samples, steps, features};
  in.layer_input = by_steps(run.input, samples, steps, features);
  in.state.assign(samples * h, 0);
  if (cell == kernels::Cell::lstm) in.memory.assign(samples * h, 0);
  in.weights = run.parameters[0], in.recurrent = run.parameters[1];
  in.bias.assign(run.parameters[2].begin(), run.parameters[2].end());
  const kernels::RnnTrace trace = kernels::rnn_forward_reference(in);
  std::vector<double> delta(trace.hidden.size()), output = trace.hidden;
  if (every) {
    delta = by_steps(run.output_gradient, samples, steps, h);
  } else {
    std::ranges::copy(run.output_gradient, delta.end() - samples * h);
    output.erase(output.begin(), output.end() - samples * h);
  }
  const kernels::RnnGradients g = kernels::rnn_backward_reference(in, trace, delta);
  const auto each = [&](std::size_t n, auto&& at) {
    std::vector<double> all(n);
    for (std::size_t i = 0; i < n; ++i) all[i] = at(i);
    return all;
  };
  const auto floats = [](const std::vector<double>& x) { return std::vector<float>(x.begin(), x.end()); };
  expect_near(every ? floats(by_steps(run.output, samples, steps, h)) : run.output, output, "output");
  const auto size = [&](std::size_t tensor) { return run.gradients[tensor].size(); };
  expect_near(run.gradients[0], each(size(0), [&](auto i) { return weights_gradient_at(in, g, i); }), "weights");
  expect_near(run.gradients[1], each(size(1), [&](auto i) { return recurrent_gradient_at(in, trace, g, i); }),
              "recurrent");
  expect_near(run.gradients[2], each(size(2), [&](auto i) { return bias_gradient_at(in, g, i); }), "bias");
  expect_near(floats(by_steps(run.input_gradient, samples, steps, features)), g.layer_input, "input");
}
INSTANTIATE_TEST_SUITE_P(Cells, RecurrentLayers,
                         testing::Values(std::pair{kernels::Cell::lstm, RecurrentOutput::every_step},
                                         std::pair{kernels::Cell::lstm, RecurrentOutput::last_step},
                                         std::pair{kernels::Cell::gru, RecurrentOutput::every_step},
                                         std::pair{kernels::Cell::vanilla, RecurrentOutput::last_step}));

TEST_F(Layers, ADenseLayerHasTheOutputsAndGradientsOfItsDefinition) {
  constexpr std::size_t samples = 4, in = 6, out = 5;
  const auto layer = make_dense_layer(FeatureShape{in}, out, kernels::Activation::relu);
  const LayerRun run(*layer, samples);
  const std::vector<float>&w = run.parameters[0], &b = run.parameters[1];
  std::vector<double> output, weight(out * in), bias(out), input(samples * in);
  for (std::size_t n = 0; n < samples; ++n)
    for (std::size_t o = 0; o < out; ++o) {
      double sum = b[o];
      for (std::size_t i = 0; i < in; ++i) sum += double{w[o * in + i]} * run.input[n * in + i];
      output.push_back(std::max(sum, 0.0));
      const double delta = sum > 0 ? run.output_gradient[n * out + o] : 0;
      bias[o] += delta;
      for (std::size_t i = 0; i < in; ++i) {
        weight[o * in + i] += delta * run.input[n * in + i];
        input[n * in + i] += delta * w[o * in + i];
      }
    }
  expect_near(run.output, output, "output");
  expect_near(run.gradients[0], weight, "weight");
  expect_near(run.gradients[1], bias, "bias");
  expect_near(run.input_gradient, input, "input");
  const LayerRun first(*layer, samples, false);
  EXPECT_EQ(first.gradients, run.gradients);
}

/// Remembers what is submitted.
class RecordingQueue final : public runtime::Queue {
 public:
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    flops[std::string(label)] += cost.flops;
    work();
  }
  std::map<std::string, double> flops;
};

TEST_F(Layers, SubmitTheOperationsThatKernelsTimesAtTheirCost) {
  using kernels::Pass;
  const auto layer = make_convolution_layer({.channels = 3, .height = 8, .width = 8}, {.filters = 4, .pad = 1});
  const kernels::Problem p{.shape = kernels::ConvShape{.width = 8,
                                                       .height = 8,
                                                       .channels = 3,
                                                       .batch = 2,
                                                       .filters = 4,
                                                       .filter_width = 3,
                                                       .filter_height = 3,
                                                       .pad_width = 1,
                                                       .pad_height = 1}};
  RecordingQueue queue;
  auto filters = drawn(4 * 3 * 9, 1), bias = drawn(4, 2), input = drawn(2 * 3 * 64, 3), output = drawn(2 * 4 * 64, 4);
  auto delta = output, below = input, filters_gradient = filters, bias_gradient = bias;
  const auto prepared = layer->prepare(2, true, queue.device());
  prepared->forward({queue, {filters, bias}, input, output});
  prepared->backward(
      {queue, {filters, bias}, input, output, delta, below, {filters_gradient, bias_gradient}, [](auto) {}});
  EXPECT_EQ(queue.flops["forward.conv"], kernels::flops(p));
  EXPECT_EQ(queue.flops["backward.conv"], 2 * kernels::flops(p));
  const LayerProblems named = layer->problems(2, true);
  ASSERT_EQ(named.forward.size(), 1U);
  EXPECT_TRUE(same_work(named.forward[0], p));
  ASSERT_EQ(named.backward.size(), 2U);
  EXPECT_EQ(named.backward[0].pass, Pass::backward_weights);
  EXPECT_EQ(named.backward[1].pass, Pass::backward_data);
}

/// ‖a − b‖/‖b‖.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double off = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    off += std::pow(double{a[i]} - double{b[i]}, 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(off / size);
}

/// Between `least`, so that the narrow format is really used, and `most`, that of the layer in fp32.
void expect_rounded(const Layer& narrow, const Layer& wide, double least, double most) {
  const LayerRun found(narrow, 6), wanted(wide, 6);
  const auto expect = [&](const char* what, const std::vector<float>& a, const std::vector<float>& b) {
    const double d = distance(a, b);
    EXPECT_LE(d, most) << narrow.name() << " " << what;
    EXPECT_GE(d, least) << narrow.name() << " " << what;
  };
  expect("output", found.output, wanted.output);
  expect("input", found.input_gradient, wanted.input_gradient);
  expect("weights", found.gradients[0], wanted.gradients[0]);
  EXPECT_EQ(found.ready, wanted.ready);
}

TEST_F(Layers, InABf16LayerOperandsAndResultsAreRounded) {
  using kernels::Precision;
  const auto dense = [](Precision p) { return make_dense_layer(FeatureShape{40}, 30, kernels::Activation::none, p); };
  const auto convolution = [](Precision p) {
    return make_convolution_layer({.channels = 3, .height = 8, .width = 8}, {.filters = 4, .pad = 1}, p);
  };
  const auto recurrent = [](Precision p) {
    return make_recurrent_layer(kernels::Cell::lstm, {.steps = 4, .features = 6}, 12, RecurrentOutput::every_step, p);
  };
  expect_rounded(*dense(Precision::bf16), *dense(Precision::fp32), 1e-4, 1e-2);
  // A ReLU that falls on the other side of zero changes whole gradients.
  expect_rounded(*convolution(Precision::bf16), *convolution(Precision::fp32), 1e-4, 1e-1);
  expect_rounded(*recurrent(Precision::bf16), *recurrent(Precision::fp32), 1e-4, 3e-2);
}

TEST_F(Layers, ALogarithmicDenseLayerSumsItsBiasAsLogarithms) {
  constexpr std::size_t samples = 50, out = 3;
  for (const auto precision : {kernels::Precision::lns16, kernels::Precision::lns16_f7}) {
    const kernels::Lns lns(kernels::info(precision).logarithm_bits);
    const auto layer = make_dense_layer(FeatureShape{20}, out, kernels::Activation::none, precision);
    const LayerRun run(*layer, samples);
    for (std::size_t j = 0; j < out; ++j) {
      kernels::Lns16 sum;
      for (std::size_t i = 0; i < samples; ++i)
        sum = lns.add(sum, lns.encode(double{run.output_gradient[i * out + j]}));
      EXPECT_EQ(run.gradients[1][j], static_cast<float>(lns.decode(sum)));
    }
    const auto wide = make_dense_layer(FeatureShape{20}, out, kernels::Activation::none);
    expect_rounded(*layer, *wide, 5e-4, 1e-1);
    EXPECT_EQ(layer->problems(samples, true).backward.size(), 3U);
  }
}

TEST_F(Layers, AnEmbeddingGivesRowsAndAddsGradientsInTheOrderOfTheBatch) {
  constexpr std::size_t steps = 3, words = 5, width = 2;
  const auto layer = make_embedding_layer(steps, words, width);
  EXPECT_EQ(elements(layer->output()), steps * width);
  const std::vector<float> table = drawn(words * width, 1), delta = drawn(2 * steps * width, 2);
  const std::vector<float> input{4, 0, 4, 1, 4, 0};
  std::vector<float> output(delta.size()), gradient(table.size(), 7), used = delta;
  runtime::HostQueue queue;
  const auto prepared = layer->prepare(2, false, queue.device());
  prepared->forward({queue, {table}, input, output});
  std::vector<std::size_t> ready;
  prepared->backward({queue, {table}, input, output, used, runtime::empty_buffer, {gradient}, [&](std::size_t t) {
                        ready.push_back(t);
                      }});
  std::vector<float> sums(table.size());
  for (std::size_t i = 0; i < input.size(); ++i)
    for (std::size_t j = 0; j < width; ++j) {
      const std::size_t at = static_cast<std::size_t>(input[i]) * width + j;
      EXPECT_EQ(output[i * width + j], table[at]);
      sums[at] += delta[i * width + j];
    }
  EXPECT_EQ(gradient, sums);
  EXPECT_EQ(ready, std::vector<std::size_t>{0});
  for (const float bad : {-1.0F, 5.0F, std::nanf("")}) {
    const std::vector<float> wrong{bad, 0, 0, 0, 0, 0};
    EXPECT_THROW(prepared->forward({queue, {table}, wrong, output}), std::out_of_range) << bad;
  }
  EXPECT_THROW((void)layer->prepare(2, true, queue.device()), std::logic_error);
}

TEST_F(Layers, ADenseLayerOfStepsIsOneOfAsManySamples) {
  constexpr std::size_t samples = 3, steps = 4;
  const auto by_step =
      make_step_dense_layer({.steps = steps, .features = 6}, 5, {.activation = kernels::Activation::relu});
  const auto plain = make_dense_layer(FeatureShape{6}, 5, kernels::Activation::relu);
  const LayerRun found(*by_step, samples), wanted(*plain, samples * steps);
  EXPECT_EQ(found.output, wanted.output);
  EXPECT_EQ(found.gradients, wanted.gradients);
  EXPECT_EQ(found.input_gradient, wanted.input_gradient);
  EXPECT_TRUE(std::holds_alternative<TokenShape>(by_step->output()));
}

}  // namespace
}  // namespace gradmeter::model
