// SPDX-License-Identifier: Apache-2.0
// Inference: in fp32 what training's forward pass computes; in int8 the sums of the whole numbers that the quantization
// says, within a bound of float64 on any data, also where padding meets a zero point.
#include "model/network/inference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "kernels/conv/reference.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/number_format.hpp"
#include "kernels/op.hpp"
#include "kernels/rnn/reference.hpp"
#include "model/layer_run.hpp"
#include "model/layers/layers.hpp"
#include "model/registry.hpp"

namespace gradmeter::model {
namespace {

using kernels::Activation;
using kernels::Cell;
using kernels::Precision;

class InferenceLayers : public testing::Test {
 protected:
  void SetUp() override {
    kernels::set_compute_threads(1);
    if (!kernels::onednn_refusal().empty()) GTEST_SKIP() << kernels::onednn_refusal();
  }
};

using FloatParameters = std::vector<std::vector<float>>;

std::vector<float> inferred(const Layer& layer, const FloatParameters& parameters, const std::vector<float>& input,
                            Precision precision, const ActivationRange& range = {}) {
  runtime::HostQueue queue;
  const std::size_t samples = input.size() / elements(layer.input());
  std::vector<float> output(samples * elements(layer.output()));
  const auto prepared = layer.prepare_inference({.samples = samples,
                                                 .precision = precision,
                                                 .parameters = {parameters.begin(), parameters.end()},
                                                 .input = range},
                                                queue);
  for (int pass = 0; pass < 2; ++pass) prepared->forward(queue, input, output);  // nothing of the first may be left
  return output;
}

TEST_F(InferenceLayers, ComputeInFp32WhatTrainingDoes) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(make_dense_layer(FeatureShape{17}, 9, Activation::relu));
  layers.push_back(make_dense_layer(FeatureShape{17}, 9, Activation::none));
  layers.push_back(make_step_dense_layer({.steps = 5, .features = 7}, 4, {.activation = Activation::none}));
  layers.push_back(make_convolution_layer({.channels = 3, .height = 9, .width = 8},
                                          {.filters = 5, .side = 3, .stride = 2, .pad = 1}));
  for (const Cell cell : {Cell::vanilla, Cell::lstm, Cell::gru})
    for (const auto output : {RecurrentOutput::every_step, RecurrentOutput::last_step})
      layers.push_back(make_recurrent_layer(cell, {.steps = 6, .features = 11}, 13, output));
  for (const auto& layer : layers) {
    const LayerRun run(*layer, 3);
    const auto found = inferred(*layer, run.parameters, run.input, Precision::fp32);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], run.output[i], 1e-5) << layer->name();
  }
}

TEST_F(InferenceLayers, WithoutProductsAreInferredAsTheyTrainInEveryPrecision) {
  const auto layer = make_embedding_layer(4, 6, 3);
  EXPECT_EQ(layer->inference_refusal(Precision::int8), "");
  const FloatParameters table{drawn(6 * 3, 1)};
  const auto found = inferred(*layer, table, {0, 5, 2, 2}, Precision::int8);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(found[3 + i], table[0][5 * 3 + i]);
}

/// A product or convolution, and what there is to know of its sums.
struct Summed {
  std::unique_ptr<Layer> layer;
  kernels::ConvShape shape;  ///< a product is a convolution of one pixel
  bool is_relu;
  std::size_t filter() const { return shape.channels * shape.filter_width * shape.filter_height; }
  std::size_t pixels() const { return shape.out_width() * shape.out_height(); }
  std::size_t output_of(std::size_t i) const { return i / pixels() % shape.filters; }
};

std::vector<Summed> summed_layers() {
  std::vector<Summed> all;
  for (const bool relu : {true, false})
    all.push_back(
        {make_dense_layer(FeatureShape{83}, 21, relu ? Activation::relu : Activation::none),
         {.width = 1, .height = 1, .channels = 83, .batch = 3, .filters = 21, .filter_width = 1, .filter_height = 1},
         relu});
  all.push_back({make_convolution_layer({.channels = 3, .height = 9, .width = 8},
                                        {.filters = 19, .side = 5, .stride = 2, .pad = 2}),
                 {.width = 8,
                  .height = 9,
                  .channels = 3,
                  .batch = 3,
                  .filters = 19,
                  .filter_width = 5,
                  .filter_height = 5,
                  .pad_width = 2,
                  .pad_height = 2,
                  .stride_width = 2,
                  .stride_height = 2},
                 true});
  return all;
}

double sum_at(const Summed& s, const std::vector<float>& x, const std::vector<float>& w, std::size_t i) {
  return kernels::conv_at(s.shape, kernels::Pass::forward, x, w, i).value;
}
std::vector<float> sizes_of(std::vector<float> x) {
  for (float& v : x) v = std::fabs(v);
  return x;
}

// Numbers that whole numbers stand for exactly: then sums have no error but fp32's.
TEST_F(InferenceLayers, Int8SumsTheWholeNumbersThatTheQuantizationSays) {
  const ActivationRange range{.least = -0.5F, .greatest = 2};  // 51 steps below zero
  const kernels::Quantization q = kernels::quantize_range(range.least, range.greatest);
  ASSERT_EQ(q.zero_point, 51);
  const auto largest = static_cast<std::int64_t>(kernels::largest_int8_weight());
  for (const Summed& s : summed_layers()) {
    const core::Random random(5, 0x73);
    std::vector<float> x(3 * elements(s.layer->input())), w(s.shape.filters * s.filter());
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(static_cast<double>(random.below(i, 256)) - q.zero_point) * q.quantum;
    for (std::size_t i = 0; i < w.size(); ++i) {
      const auto whole =
          i % s.filter() == 0
              ? largest
              : static_cast<std::int64_t>(random.below(i, static_cast<std::uint64_t>(2 * largest + 1))) - largest;
      w[i] = static_cast<float>(whole) * 0.001F * static_cast<float>(1 + i / s.filter());
    }
    const std::vector<float> bias = drawn(s.shape.filters, 9);
    const auto found = inferred(*s.layer, {w, bias}, x, Precision::int8, range);
    for (std::size_t i = 0; i < found.size(); ++i) {
      double wanted = sum_at(s, x, w, i) + bias[s.output_of(i)];
      if (s.is_relu) wanted = std::max(wanted, 0.0);
      EXPECT_NEAR(found[i], wanted, 2e-6 * (sum_at(s, sizes_of(x), sizes_of(w), i) + 1)) << s.layer->name() << " " << i;
    }
  }
}

// |x̂ŵ − xw| ≤ |x| qw/2 + |w| qx/2 + qx qw/4, with x̂ and ŵ within half a quantum.
TEST_F(InferenceLayers, Int8IsWithinTheBoundOfItsQuantaOnAnyData) {
  for (const Summed& s : summed_layers()) {
    const std::vector<float> x = drawn(3 * elements(s.layer->input()), 3), w = drawn(s.shape.filters * s.filter(), 4),
                             bias = drawn(s.shape.filters, 5);
    ActivationRange range;
    range.add(x);
    const double qx = kernels::quantize_range(range.least, range.greatest).quantum;
    std::vector<float> qw(s.shape.filters);
    kernels::raise_to_largest(w, s.filter(), qw);
    kernels::to_weight_quanta(qw);
    const auto found = inferred(*s.layer, {w, bias}, x, Precision::int8, range);
    const std::vector<float> ones_x(x.size(), 1), ones_w(w.size(), 1);
    double largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double half = qw[s.output_of(i)] / 2;
      double wanted = sum_at(s, x, w, i) + bias[s.output_of(i)];
      if (s.is_relu) wanted = std::max(wanted, 0.0);
      const double bound = sum_at(s, sizes_of(x), ones_w, i) * half + sum_at(s, ones_x, sizes_of(w), i) * qx / 2 +
                           sum_at(s, ones_x, ones_w, i) * half * qx / 2 + 1e-5 * sum_at(s, sizes_of(x), sizes_of(w), i);
      EXPECT_LE(std::fabs(found[i] - wanted), bound) << s.layer->name() << " " << i;
      largest = std::max(largest, std::fabs(found[i] - wanted) / bound);
    }
    EXPECT_GT(largest, 0.02) << s.layer->name() << ": it was not quantized";
  }
}

TEST_F(InferenceLayers, Int8CutsOffWhatIsBeyondTheRange) {
  const auto layer = make_dense_layer(FeatureShape{1}, 1, Activation::none);
  const FloatParameters identity{{1}, {0}};
  const auto found = inferred(*layer, identity, {-9, 0, 9}, Precision::int8, {.least = -1, .greatest = 2});
  EXPECT_NEAR(found[0], -1, 0.01);
  EXPECT_EQ(found[1], 0);
  EXPECT_NEAR(found[2], 2, 0.01);
}

class RecurrentInt8 : public InferenceLayers, public testing::WithParamInterface<Cell> {};

// Each step from the states that the layer itself found, so that every step is compared by itself.
TEST_P(RecurrentInt8, MakesTheStepsOfItsDefinitionOnWholeNumbers) {
  constexpr std::size_t samples = 3, steps = 5, h = 32, features = 13;
  const Cell cell = GetParam();
  const std::size_t gates = kernels::gates_of(cell);
  const auto layer = make_recurrent_layer(cell, {.steps = steps, .features = features}, h, RecurrentOutput::every_step);
  const ActivationRange range{.least = 0, .greatest = 1.5F};
  const kernels::Quantization q = kernels::quantize_range(-1, 1.5F);  // states are in ±1
  const auto largest = kernels::largest_int8_weight();
  const core::Random random(5, 0x74);
  std::uint64_t draw = 0;
  const auto weights = [&](std::size_t inputs) {
    std::vector<float> w(inputs * gates * h);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double quantum = (0.3 + 0.02 * static_cast<double>(i % (gates * h) % 7)) / largest;
      w[i] = static_cast<float>(std::round((2 * random.uniform(draw++) - 1) * largest) * quantum);
      if (i < gates * h && inputs == features) w[i] = static_cast<float>(largest * quantum);
    }
    return w;
  };
  const FloatParameters parameters{weights(features), weights(h), drawn(gates * h, 4, 0.2)};
  std::vector<float> x(samples * steps * features);
  for (float& v : x) v = static_cast<float>(random.below(draw++, 154)) * q.quantum;
  const auto found = inferred(*layer, parameters, x, Precision::int8, range);

  const auto by_steps = [&](const std::vector<float>& from, std::size_t width) {
    std::vector<double> out(from.size());
    for (std::size_t n = 0; n < samples; ++n)
      for (std::size_t t = 0; t < steps; ++t)
        for (std::size_t i = 0; i < width; ++i) out[(t * samples + n) * width + i] = from[(n * steps + t) * width + i];
    return out;
  };
  kernels::RnnInputs in{cell, h, samples, steps, features};
  in.layer_input = by_steps(x, features);
  in.state.assign(samples * h, 0);
  if (cell == Cell::lstm) in.memory.assign(samples * h, 0);
  in.weights = parameters[0], in.recurrent = parameters[1];
  in.bias.assign(parameters[2].begin(), parameters[2].end());
  in.observed = by_steps(found, h);
  in.round_stored = [&](double v) {
    return (std::clamp(std::nearbyint(v / q.quantum) + q.zero_point, 0.0, 255.0) - q.zero_point) * q.quantum;
  };
  const auto wanted = kernels::rnn_forward_reference(in).hidden;
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) worst = std::max(worst, std::fabs(in.observed[i] - wanted[i]));
  EXPECT_LE(worst, 0.5 * q.quantum + 2e-3);
  EXPECT_GT(worst, 0.3 * q.quantum);
}
INSTANTIATE_TEST_SUITE_P(Cells, RecurrentInt8, testing::Values(Cell::lstm, Cell::gru),
                         [](const auto& cell) { return std::string(kernels::name(cell.param)); });

TEST_F(InferenceLayers, RefuseWhatNoBackendHas) {
  const auto rnn = make_model("rnn:hidden=8", {.features = 16, .classes = 3});
  EXPECT_NE(inference_refusal(*rnn, Precision::int8).find("lstm and gru alone"), std::string::npos);
  EXPECT_NE(inference_refusal(*rnn, Precision::int4).find("no backend has rnn in int4"), std::string::npos);
  EXPECT_EQ(inference_refusal(*rnn, Precision::fp32), "");
}

struct SmallNetwork {
  std::unique_ptr<Network> network =
      make_model("cnn:convolutions=2,filters=4,hidden=12", {.features = 64, .classes = 5});
  std::vector<float> parameters = std::vector<float>(network->element_count()), gradients = parameters,
                     inputs = drawn(6 * 64, 1);
  std::vector<std::int32_t> labels = std::vector<std::int32_t>(6);
  runtime::HostQueue queue;
  SmallNetwork() { network->initialise(queue, {parameters, gradients}, 3); }
};

double distance(std::span<const float> a, std::span<const float> b) {
  double off = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) off += std::pow(a[i] - b[i], 2), size += std::pow(b[i], 2);
  return std::sqrt(off / size);
}

TEST_F(InferenceLayers, MakeANetworkWhoseLogitsAreTrainingsWithinThePrecision) {
  SmallNetwork n;
  std::vector<ActivationRange> ranges;
  calibrate(*n.network, n.queue, {n.parameters, n.gradients}, {n.inputs, n.labels}, ranges);
  ASSERT_EQ(ranges.size(), 4u);
  EXPECT_EQ(ranges[0].greatest, *std::ranges::max_element(n.inputs));
  EXPECT_EQ(ranges[0].least, *std::ranges::min_element(n.inputs));
  EXPECT_EQ(ranges[1].least, 0) << "behind a ReLU";
  const auto outputs = n.network->layer_outputs(n.queue, {n.parameters, n.gradients}, {n.inputs, n.labels});
  const auto wanted = outputs.back().values<float>();
  const std::vector<float> reference(wanted.begin(), wanted.end());
  for (const auto& [precision, least, most] :
       {std::tuple{Precision::fp32, 0.0, 1e-6}, std::tuple{Precision::int8, 1e-4, 0.05},
        std::tuple{Precision::int4, 0.05, 0.7}}) {
    Inference inference(*n.network, n.parameters, 6, precision, ranges, n.queue);
    const double off = distance(inference.run(n.queue, n.inputs).values<float>(), reference);
    EXPECT_GE(off, least) << kernels::name(precision);
    EXPECT_LE(off, most) << kernels::name(precision);
    EXPECT_NE(inference.implementation(), "");
  }
}

TEST(MakeNetwork, HasTheTensorsOfTheModelThatTrains) {
  const ModelRequest r{.features = 9, .classes = 4};
  const auto trained = make_model("mlp:9-20-33-4", r);
  const auto network = make_model("mlp:9-20-33-4", r);
  ASSERT_EQ(trained->tensors().size(), network->tensors().size());
  for (std::size_t i = 0; i < network->tensors().size(); ++i) {
    EXPECT_EQ(trained->tensors()[i].name, network->tensors()[i].name);
    EXPECT_EQ(trained->tensors()[i].offset, network->tensors()[i].offset);
    EXPECT_EQ(trained->tensors()[i].shape, network->tensors()[i].shape);
  }
  EXPECT_FALSE(make_model("alexnet", {.features = 784, .classes = 10})->learns());
}

}  // namespace
}  // namespace gradmeter::model
