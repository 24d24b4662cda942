// SPDX-License-Identifier: Apache-2.0
// Everything but the numbers: order of announcements, memory, first weights, repeated and wrong use.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "core/format.hpp"
#include "model/mlp_net.hpp"
#include "support/accuracy.hpp"

namespace gradmeter::model {
namespace {

/// Writes down what is asked of it, in order.
struct Recorder final : Queue {
  void submit(std::string_view label, Cost cost, const runtime::Work& work) override {
    events.emplace_back(label);
    if (label.ends_with(".gemm")) gemm_flops += cost.flops;
    EXPECT_GT(cost.bytes, 0);
    work();
  }
  std::vector<std::string> events;
  double gemm_flops = 0;
};

TEST(Mlp, TensorsAreAnnouncedInOrderAndFinal) {
  Net net({20, 30, 25, 10});
  const Data data = random_data(8, 20, 10);
  std::vector<std::size_t> order;
  Floats at_announcement(net.gradients.size());
  net.mlp.pass(net.queue, net.buffers(), data.batch(), [&](std::size_t i) {
    order.push_back(i);
    const Tensor& t = net.mlp.tensors()[i];
    std::copy_n(net.gradients.begin() + std::ptrdiff_t(t.offset), t.count,
                at_announcement.begin() + std::ptrdiff_t(t.offset));
  });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(at_announcement, net.gradients);
}

TEST(Mlp, ALayerIsAnnouncedBeforeTheNextInputGradientIsComputed) {
  Net net({24, 32, 10});  // a gap behind the last bias alone
  Recorder recorder;
  const Data data = random_data(8, 24, 10);
  net.mlp.pass(recorder, net.buffers(), data.batch(),
               [&](std::size_t i) { recorder.events.push_back(fmt::format("ready {}", i)); });
  EXPECT_EQ(recorder.events, (std::vector<std::string>{"forward.gemm", "forward.gemm", "forward.softmax",  //
                                                       "backward.gemm", "ready 0",                         //
                                                       "backward.bias", "backward.gap", "ready 1",         //
                                                       "backward.gemm", "backward.relu",                   //
                                                       "backward.gemm", "ready 2", "backward.bias", "ready 3"}));
}

TEST(Mlp, StepFlopsAreThoseOfTheMatrixProductsAskedFor) {
  for (const Widths& widths : {Widths{20, 30, 10}, Widths{20, 10}, Widths{7, 6, 5, 4, 3}}) {
    Net net(widths);
    Recorder recorder;
    const Data data = random_data(8, widths.front(), widths.back());
    net.mlp.pass(recorder, net.buffers(), data.batch(), [](std::size_t) {});
    EXPECT_EQ(recorder.gemm_flops, net.mlp.step_flops(8)) << net.mlp.name();
  }
  EXPECT_EQ(Mlp({20, 30, 10}).step_flops(8), 2.0 * 8 * (2 * 600 + 3 * 300));
}

TEST(Mlp, TensorsStandLastLayerFirstOnCacheLines) {
  const Mlp mlp({784, 100, 10});
  ASSERT_EQ(mlp.tensors().size(), 4U);
  const char* names[] = {"layer2.weight", "layer2.bias", "layer1.weight", "layer1.bias"};
  const std::vector<std::size_t> shapes[] = {{10, 100}, {10}, {100, 784}, {100}};
  std::size_t expected_offset = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const Tensor& t = mlp.tensors()[i];
    EXPECT_EQ(t.name, names[i]);
    EXPECT_EQ(t.shape, shapes[i]);
    EXPECT_EQ(t.offset, expected_offset);
    EXPECT_EQ(t.offset % 16, 0U);
    expected_offset += (t.count + 15) / 16 * 16;
  }
  EXPECT_EQ(mlp.element_count(), expected_offset);
  EXPECT_EQ(mlp.input_features(), 784U);
  EXPECT_EQ(mlp.classes(), 10U);
  EXPECT_EQ(mlp.workspace_bytes(16), 2U * 4 * 16 * (100 + 10));
}

TEST(Mlp, PaddingIsZeroWhateverStoodThere) {
  Net net({5, 7, 3});
  std::ranges::fill(net.gradients, std::numeric_limits<float>::quiet_NaN());
  net.step(random_data(4, 5, 3).batch());
  std::size_t padding = 0;
  for (std::size_t i = 0, tensor = 0; i < net.gradients.size(); ++i) {
    while (tensor + 1 < net.mlp.tensors().size() && net.mlp.tensors()[tensor + 1].offset <= i) ++tensor;
    const Tensor& t = net.mlp.tensors()[tensor];
    EXPECT_TRUE(std::isfinite(net.gradients[i])) << i;
    if (i < t.offset + t.count) continue;
    ++padding;
    EXPECT_EQ(net.gradients[i], 0) << i;
    EXPECT_EQ(net.parameters[i], 0) << i;
  }
  EXPECT_EQ(padding, (32U - 21) + (16U - 3) + (48U - 35) + (16U - 7));
}

TEST(Mlp, InitialisationDependsOnTheSeedAlone) {
  const Mlp mlp({100, 50, 10});
  const auto draw = [&](std::uint64_t seed) {
    Floats parameters(mlp.element_count(), 7.0F), gradients(mlp.element_count(), 7.0F);
    runtime::HostQueue queue;
    mlp.initialise(queue, {parameters, gradients}, seed);
    EXPECT_EQ(gradients, Floats(gradients.size()));
    return parameters;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(Mlp, WeightsStartWithTheVarianceOfHe) {
  const Mlp mlp({100, 200, 200, 10});
  Floats parameters(mlp.element_count()), gradients(mlp.element_count());
  runtime::HostQueue queue;
  mlp.initialise(queue, {parameters, gradients}, 4);
  std::set<float> firsts;
  for (const Tensor& t : mlp.tensors()) {
    double squares = 0;
    for (std::size_t i = 0; i < t.count; ++i) squares += std::pow(double{parameters[t.offset + i]}, 2);
    if (t.shape.size() == 1) {
      EXPECT_EQ(squares, 0) << t.name;
      continue;
    }
    const double variance = 2.0 / double(t.shape[1]);
    EXPECT_NEAR(squares / double(t.count) / variance, 1, 5 / std::sqrt(double(t.count))) << t.name;
    firsts.insert(parameters[t.offset]);
  }
  EXPECT_EQ(firsts.size(), 3U) << "layers must not share their draws";
}

TEST(Mlp, ForwardNeedsNoGradients) {
  Net net({5, 7, 4});
  const Data data = random_data(3, 5, 4);
  const Outcome with = net.mlp.forward(net.queue, net.buffers(), data.batch()).get();
  const Outcome without = net.mlp.forward(net.queue, {net.parameters, std::span<float>{}}, data.batch()).get();
  EXPECT_EQ(with.loss_sum, without.loss_sum);
}

TEST(Mlp, AValidationBatchBetweenTwoStepsChangesNothing) {
  Net net({5, 7, 4});
  const Data data = random_data(3, 5, 4), other = random_data(10, 5, 4, 10);
  net.step(data.batch());
  const Floats before = net.gradients;
  net.mlp.forward(net.queue, net.buffers(), other.batch());
  net.step(data.batch());
  EXPECT_EQ(net.gradients, before);
}

TEST(Mlp, TheNumberOfThreadsMayChangeBetweenSteps) {
  Net net({20, 30, 10});
  const Data data = random_data(8, 20, 10);
  net.step(data.batch());
  const Floats one = net.gradients;
  kernels::set_compute_threads(2);
  net.step(data.batch());
  kernels::set_compute_threads(1);
  EXPECT_LE(test::relative_error(net.gradients, one), 1e-6);
}

TEST(Mlp, BuffersAndBatchesOfTheWrongSizeAreRefused) {
  Net net({5, 7, 4});
  const Data data = random_data(3, 5, 4);
  const auto ready = [](std::size_t) {};
  const std::span<float> all(net.parameters), grads(net.gradients);
  const Buffers short_parameters{all.first(all.size() - 1), grads}, short_gradients{all, grads.first(3)};
  EXPECT_THROW(net.mlp.forward(net.queue, short_parameters, data.batch()), std::invalid_argument);
  EXPECT_THROW(net.mlp.forward(net.queue, net.buffers(), {std::span<const float>{}, std::span<const std::int32_t>{}}),
               std::invalid_argument);
  EXPECT_THROW(net.mlp.forward(net.queue, net.buffers(), {std::span(data.inputs).first(14), data.labels}),
               std::invalid_argument);
  EXPECT_THROW(net.mlp.initialise(net.queue, short_gradients, 1), std::invalid_argument);
  EXPECT_THROW(net.mlp.pass(net.queue, short_gradients, data.batch(), ready), std::invalid_argument);
}

}  // namespace
}  // namespace gradmeter::model
