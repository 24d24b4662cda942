#include "model/mlp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/accuracy.hpp"
#include "kernels/pointwise.hpp"
#include "kernels/threads.hpp"
#include "model/registry.hpp"

namespace gradmeter::model {
namespace {

using Floats = kernels::AlignedVector<float>;
using Widths = std::vector<std::size_t>;

struct Data {
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
  Batch batch() const { return {inputs, labels}; }
  Batch part(std::size_t first, std::size_t count) const {
    const std::size_t features = inputs.size() / labels.size();
    return {std::span(inputs).subspan(first * features, count * features), std::span(labels).subspan(first, count)};
  }
};

Data random_data(std::size_t samples, std::size_t features, std::size_t classes, std::uint64_t seed = 9) {
  const core::Random random(seed, 0);
  Data data{std::vector<float>(samples * features), std::vector<std::int32_t>(samples)};
  for (std::size_t i = 0; i < data.inputs.size(); ++i) data.inputs[i] = static_cast<float>(random.gaussian(i));
  for (std::size_t i = 0; i < samples; ++i) data.labels[i] = static_cast<std::int32_t>(random.below(i, classes));
  return data;
}

/// A model with its two buffers, biases not zero so that they count.
struct Net {
  explicit Net(const Widths& widths, std::uint64_t seed = 1, std::string backend = "onednn")
      : mlp(widths, std::move(backend)), parameters(mlp.element_count()), gradients(mlp.element_count()) {
    kernels::set_compute_threads(1);
    mlp.initialise(buffers(), seed);
    const core::Random random(seed, 1000);
    for (const Tensor& t : mlp.tensors())
      if (t.shape.size() == 1)
        for (std::size_t i = 0; i < t.count; ++i)
          parameters[t.offset + i] = static_cast<float>(0.1 * random.gaussian(t.offset + i));
  }
  Buffers buffers() { return {parameters, gradients}; }
  Outcome step(const Batch& batch) {
    const Outcome outcome = mlp.forward(computer, buffers(), batch);
    mlp.backward(computer, buffers(), batch, [](std::size_t) {});
    return outcome;
  }
  Mlp mlp;
  Floats parameters, gradients;
  PlainComputer computer;
};

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
  EXPECT_LE(kernels::relative_error(net.gradients, expected), 1e-6);
  // The same check must see one wrong element.
  Floats wrong = net.gradients;
  wrong[net.mlp.tensors().back().offset] += 0.01F;
  EXPECT_GT(kernels::relative_error(wrong, expected), 1e-4);
}
INSTANTIATE_TEST_SUITE_P(Shapes, MlpGradient,
                         testing::Values(Widths{5, 7, 4}, Widths{5, 4}, Widths{6, 5, 3, 2}, Widths{3, 17, 16, 15, 10}),
                         [](const auto& instance) { return fmt::format("w{}", fmt::join(instance.param, "x")); });

TEST(Mlp, TheLossAndTheHitsAreTheReferences) {
  const Widths widths{20, 30, 10};
  Net net(widths);
  const Data data = random_data(50, 20, 10);
  const Outcome got = net.mlp.forward(net.computer, net.buffers(), data.batch());
  const Reference want = reference(net.mlp, widths, {net.parameters.begin(), net.parameters.end()}, data);
  EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-6 * want.loss_sum);
  EXPECT_EQ(got.correct, want.correct);
  EXPECT_EQ(got.samples, 50U);
}

TEST(Mlp, WithZeroParametersEachSampleLosesTheLogarithmOfTheClasses) {
  Net net({20, 30, 10});
  std::ranges::fill(net.parameters, 0.0F);
  const Data data = random_data(50, 20, 10);
  const Outcome got = net.mlp.forward(net.computer, net.buffers(), data.batch());
  EXPECT_NEAR(got.loss_sum, 50 * std::log(10.0), 1e-9);
  EXPECT_EQ(got.correct, std::size_t(std::ranges::count(data.labels, 0)));
}

TEST(Mlp, BothGemmBackendsGiveTheSameGradients) {
  const Widths widths{40, 50, 60, 10};
  Net fast(widths), exact(widths, 1, "reference");
  const Data data = random_data(33, 40, 10);
  fast.step(data.batch());
  exact.step(data.batch());
  EXPECT_LE(kernels::relative_error(fast.gradients, exact.gradients), 1e-6);
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
  EXPECT_LE(kernels::relative_error(average, whole), 1e-6);
  EXPECT_GT(kernels::relative_error(net.gradients, whole), 0.1) << "one half alone must not be taken for the whole";
}

/// Writes down what is asked of it, in order.
struct Recorder final : Computer {
  void compute(std::string_view label, Cost cost, const std::function<void()>& work) override {
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
  net.mlp.forward(net.computer, net.buffers(), data.batch());
  std::vector<std::size_t> order;
  Floats at_announcement(net.gradients.size());
  net.mlp.backward(net.computer, net.buffers(), data.batch(), [&](std::size_t i) {
    order.push_back(i);
    const Tensor& t = net.mlp.tensors()[i];
    std::copy_n(net.gradients.begin() + std::ptrdiff_t(t.offset), t.count,
                at_announcement.begin() + std::ptrdiff_t(t.offset));
  });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(at_announcement, net.gradients);
}

TEST(Mlp, ALayerIsAnnouncedBeforeTheNextInputGradientIsComputed) {
  Net net({20, 30, 10});
  Recorder recorder;
  const Data data = random_data(8, 20, 10);
  net.mlp.forward(recorder, net.buffers(), data.batch());
  net.mlp.backward(recorder, net.buffers(), data.batch(),
                   [&](std::size_t i) { recorder.events.push_back(fmt::format("ready {}", i)); });
  EXPECT_EQ(recorder.events, (std::vector<std::string>{"forward.gemm", "forward.gemm", "forward.softmax",       //
                                                       "backward.gemm", "ready 0", "backward.bias", "ready 1",  //
                                                       "backward.gemm", "backward.relu",                        //
                                                       "backward.gemm", "ready 2", "backward.bias", "ready 3"}));
}

TEST(Mlp, StepFlopsAreThoseOfTheMatrixProductsAskedFor) {
  for (const Widths& widths : {Widths{20, 30, 10}, Widths{20, 10}, Widths{7, 6, 5, 4, 3}}) {
    Net net(widths);
    Recorder recorder;
    const Data data = random_data(8, widths.front(), widths.back());
    net.mlp.forward(recorder, net.buffers(), data.batch());
    net.mlp.backward(recorder, net.buffers(), data.batch(), [](std::size_t) {});
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
  EXPECT_EQ(mlp.workspace_bytes(3), 2U * 4 * 3 * (100 + 10));
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
    mlp.initialise({parameters, gradients}, seed);
    EXPECT_EQ(gradients, Floats(gradients.size()));
    return parameters;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(Mlp, WeightsStartWithTheVarianceOfHe) {
  const Mlp mlp({100, 200, 200, 10});
  Floats parameters(mlp.element_count()), gradients(mlp.element_count());
  mlp.initialise({parameters, gradients}, 4);
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
  const Outcome with = net.mlp.forward(net.computer, net.buffers(), data.batch());
  const Outcome without = net.mlp.forward(net.computer, {net.parameters, std::span<float>{}}, data.batch());
  EXPECT_EQ(with.loss_sum, without.loss_sum);
}

TEST(Mlp, AValidationBatchBetweenTwoStepsChangesNothing) {
  Net net({5, 7, 4});
  const Data data = random_data(3, 5, 4), other = random_data(10, 5, 4, 10);
  net.step(data.batch());
  const Floats before = net.gradients;
  net.mlp.forward(net.computer, net.buffers(), other.batch());
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
  EXPECT_LE(kernels::relative_error(net.gradients, one), 1e-6);
}

TEST(Mlp, BuffersAndBatchesOfTheWrongSizeAreRefused) {
  Net net({5, 7, 4});
  const Data data = random_data(3, 5, 4);
  const auto ready = [](std::size_t) {};
  const std::span<float> all(net.parameters), grads(net.gradients);
  const Buffers short_parameters{all.first(all.size() - 1), grads}, short_gradients{all, grads.first(3)};
  EXPECT_THROW(net.mlp.forward(net.computer, short_parameters, data.batch()), std::invalid_argument);
  EXPECT_THROW(
      net.mlp.forward(net.computer, net.buffers(), {std::span<const float>{}, std::span<const std::int32_t>{}}),
      std::invalid_argument);
  EXPECT_THROW(net.mlp.forward(net.computer, net.buffers(), {std::span(data.inputs).first(14), data.labels}),
               std::invalid_argument);
  EXPECT_THROW(net.mlp.initialise(short_gradients, 1), std::invalid_argument);
  net.mlp.forward(net.computer, net.buffers(), data.batch());
  EXPECT_THROW(net.mlp.backward(net.computer, short_gradients, data.batch(), ready), std::invalid_argument);
}

TEST(Mlp, BackwardNeedsAForwardOfTheSameBatchSize) {
  Net net({5, 7, 4});
  const Data data = random_data(3, 5, 4);
  const auto ready = [](std::size_t) {};
  EXPECT_THROW(net.mlp.backward(net.computer, net.buffers(), data.batch(), ready), std::logic_error);
  net.mlp.forward(net.computer, net.buffers(), data.part(0, 2));
  EXPECT_THROW(net.mlp.backward(net.computer, net.buffers(), data.batch(), ready), std::logic_error);
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

std::string refusal(std::string_view name, std::size_t features = 784, std::size_t classes = 10) {
  try {
    make_model(name, features, classes);
    return "";
  } catch (const core::UsageError& e) {
    return e.what();
  }
}

TEST(ModelRegistry, NamesBecomeCanonical) {
  EXPECT_EQ(make_model("mlp", 784, 10)->name(), "mlp:784-1024-1024-10");
  EXPECT_EQ(make_model("mlp:784-100-10", 784, 10)->name(), "mlp:784-100-10");
  EXPECT_EQ(make_model("mlp", 64, 3)->name(), "mlp:64-1024-1024-3");
  EXPECT_EQ(make_model("mlp:784-10", 784, 10)->tensors().size(), 2U);
}

TEST(ModelRegistry, EachEntrysDefaultNameMakesIt) {
  for (const ModelEntry& entry : model_table()) {
    EXPECT_EQ(make_model(entry.name, 784, 10)->name(), entry.default_name);
    EXPECT_EQ(make_model(entry.default_name, 784, 10)->name(), entry.default_name);
    EXPECT_FALSE(entry.description.empty() || entry.source.empty());
  }
}

TEST(ModelRegistry, WhatDoesNotFitTheDataIsRefusedInOneLine) {
  EXPECT_NE(refusal("mlp:100-10").find("784"), std::string::npos);
  EXPECT_NE(refusal("mlp:784-100-12").find("12 classes"), std::string::npos);
  EXPECT_NE(refusal("mlq").find("mlp"), std::string::npos);
  for (const char* bad :
       {"mlp:784", "mlp:", "mlp:784-", "mlp:-10", "mlp:784-x-10", "mlp:784--10", "mlp:784-0-10", "mlp:784-65537-10",
        "mlp:784-99999999999999999999-10", "mlp:784-1e3-10", "mlp:width=3", "mlp:784-1.5-10", "resnet50"}) {
    EXPECT_FALSE(refusal(bad).empty()) << bad;
    EXPECT_EQ(refusal(bad).find('\n'), std::string::npos) << bad;
  }
  std::string deep = "mlp:784";
  for (int i = 0; i < 64; ++i) deep += "-10";
  EXPECT_NE(refusal(deep).find("2 to 64"), std::string::npos);
}

}  // namespace
}  // namespace gradmeter::model
