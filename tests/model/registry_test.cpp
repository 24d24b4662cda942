// SPDX-License-Identifier: Apache-2.0
#include "model/registry.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/host/library.hpp"
#include "kernels/lns/lns.hpp"
#include "model/data/sources.hpp"

namespace gradmeter::model {
namespace {

std::string model_refusal(std::string_view name, std::size_t features = 784, std::size_t classes = 10) {
  try {
    make_model(name, {.features = features, .classes = classes});
    return "";
  } catch (const core::UsageError& e) {
    return e.what();
  }
}

TEST(ModelRegistry, NamesBecomeCanonical) {
  EXPECT_EQ(make_model("mlp", {.features = 784, .classes = 10})->name(), "mlp:784-1024-1024-10");
  EXPECT_EQ(make_model("mlp:784-100-10", {.features = 784, .classes = 10})->name(), "mlp:784-100-10");
  EXPECT_EQ(make_model("mlp", {.features = 64, .classes = 3})->name(), "mlp:64-1024-1024-3");
  EXPECT_EQ(make_model("mlp:784-10", {.features = 784, .classes = 10})->tensors().size(), 2U);
}

ModelRequest usual_request(const ModelEntry& entry) {
  if (entry.reads_text) return {.features = 20, .classes = 16, .labels = 20};
  return {.features = 784, .classes = 10};
}

TEST(ModelRegistry, EachEntrysDefaultNameMakesIt) {
  for (const ModelEntry& entry : model_table()) {
    EXPECT_EQ(make_model(entry.name, usual_request(entry))->name(), entry.default_name);
    EXPECT_EQ(make_model(entry.default_name, usual_request(entry))->name(), entry.default_name);
    EXPECT_FALSE(entry.description.empty() || entry.source.empty());
  }
}

TEST(ModelRegistry, WhatDoesNotFitTheDataIsRefusedInOneLine) {
  EXPECT_NE(model_refusal("mlp:100-10").find("784"), std::string::npos);
  EXPECT_NE(model_refusal("mlp:784-100-12").find("12 classes"), std::string::npos);
  EXPECT_NE(model_refusal("mlq").find("mlp"), std::string::npos);
  for (const char* bad :
       {"mlp:784", "mlp:", "mlp:784-", "mlp:-10", "mlp:784-x-10", "mlp:784--10", "mlp:784-0-10", "mlp:784-65537-10",
        "mlp:784-99999999999999999999-10", "mlp:784-1e3-10", "mlp:width=3", "mlp:784-1.5-10", "resnet51"}) {
    EXPECT_FALSE(model_refusal(bad).empty()) << bad;
    EXPECT_EQ(model_refusal(bad).find('\n'), std::string::npos) << bad;
  }
  std::string deep = "mlp:784";
  for (int i = 0; i < 64; ++i) deep += "-10";
  EXPECT_NE(model_refusal(deep).find("2 to 64"), std::string::npos);
}

TEST(ModelRegistry, HeadsOfATransformerDivideItsWidth) {
  const ModelRequest sentences{.features = 20, .classes = 16, .labels = 20};
  for (const char* bad : {"transformer-lm:heads=5", "transformer-lm:hidden=6", "transformer-lm:heads=0",
                          "transformer-lm:tied=2", "lstm-lm:tied=yes"})
    EXPECT_THROW((void)make_model(bad, sentences), core::UsageError) << bad;
  EXPECT_NO_THROW((void)make_model("transformer-lm:heads=5,hidden=35", sentences));
}

std::size_t parameters_of(const Model& m) {
  std::size_t n = 0;
  for (const Tensor& t : m.tensors()) n += t.count;
  return n;
}

double forward_flops(const Model& m) {
  double flops = 0;
  for (const RepeatedProblem& p : m.forward_problems(1))
    flops += static_cast<double>(p.times) * kernels::run_flops(p.problem);
  return flops;
}

/// The published shapes have one bias for each gate, as ours; PyTorch's LSTM has two.
TEST(ModelRegistry, PtbsShapesHaveTheParametersAndFlopsOfTheirTables) {
  if (!kernels::onednn_refusal().empty()) GTEST_SKIP() << kernels::onednn_refusal();
  struct Shape {
    const char* table;
    std::size_t hidden, steps, parameters;
  };
  for (const Shape& s : {Shape{"ptb_lstm_small", 200, 20, 4651600}, Shape{"ptb_lstm_medium", 650, 35, 19775200},
                         Shape{"ptb_lstm_large", 1500, 35, 66022000}}) {
    const ModelRequest sentences{.features = s.steps, .classes = 10000, .labels = s.steps};
    const auto lstm = [&](const char* tied) {
      return make_model(fmt::format("lstm-lm:hidden={},layers=2,tied={}", s.hidden, tied), sentences);
    };
    const auto model = lstm("0"), tied = lstm("1"), table = make_model(s.table, {.features = 784, .classes = 10});
    EXPECT_EQ(parameters_of(*model), s.parameters) << s.table;
    EXPECT_EQ(parameters_of(*model), parameters_of(*table)) << s.table;
    EXPECT_EQ(forward_flops(*model), forward_flops(*table)) << s.table;
    EXPECT_EQ(parameters_of(*tied), s.parameters - 10000 * s.hidden) << s.table;
    EXPECT_EQ(tied->step_flops(3), model->step_flops(3)) << s.table;
  }
}

std::unique_ptr<Model> made(std::string_view name, kernels::Precision precision) {
  return make_model(name, {.features = 784, .classes = 10, .precision = precision});
}

std::vector<float> first_weights(const Model& m) {
  std::vector<float> parameters(m.element_count()), gradients(m.element_count());
  runtime::HostQueue queue;
  m.initialise(queue, {parameters, gradients}, 7);
  return parameters;
}

TEST(ModelRegistry, ModelsOfImagesAndOfSentencesAreToldApart) {
  for (const ModelEntry& entry : model_table()) {
    ModelRequest other = usual_request(entry);
    other.labels = entry.reads_text ? 1 : other.features;
    EXPECT_THROW((void)make_model(entry.name, other), core::UsageError) << entry.name;
  }
}

TEST(ModelRegistry, AnMlpInAnyPrecisionHasTheSameTensorsAndFirstWeights) {
  if (!kernels::onednn_refusal().empty()) GTEST_SKIP() << kernels::onednn_refusal();
  const auto wide = made("mlp:784-20-30-10", kernels::Precision::fp32);
  for (const auto precision : {kernels::Precision::lns16, kernels::Precision::lns16_linear}) {
    const auto narrow = made("mlp:784-20-30-10", precision);
    EXPECT_EQ(narrow->name(), wide->name());
    ASSERT_EQ(narrow->tensors().size(), wide->tensors().size());
    for (std::size_t i = 0; i < wide->tensors().size(); ++i) {
      EXPECT_EQ(narrow->tensors()[i].name, wide->tensors()[i].name);
      EXPECT_EQ(narrow->tensors()[i].offset, wide->tensors()[i].offset);
    }
    EXPECT_EQ(first_weights(*narrow), first_weights(*wide));
  }
}

TEST(ModelRegistry, APrecisionThatALayerDoesNotHaveIsRefusedWithTheReason) {
  const auto why = [](std::string_view name, kernels::Precision precision) -> std::string {
    try {
      made(name, precision);
      return "";
    } catch (const core::UsageError& e) {
      return e.what();
    }
  };
  EXPECT_NE(why("lstm", kernels::Precision::lns16).find("no backend has rnn in lns16"), std::string::npos);
  EXPECT_NE(why("cnn", kernels::Precision::lns16).find("no backend has conv in lns16"), std::string::npos);
  EXPECT_NE(why("mlp", kernels::Precision::int8).find("int8"), std::string::npos);
}

/// Gradients of biases too, since the gradient of the logits is such a number.
TEST(Precision, WithItsLossInLogarithmsEveryGradientIsOne) {
  using enum kernels::Precision;
  const kernels::Lns lns(7);
  const auto digits = make_digits({.samples = 8, .seed = 5});
  std::vector<float> inputs(8 * 784);
  std::vector<std::int32_t> labels(8);
  gather(*digits, std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}, inputs, labels);
  const auto rounds = [&](kernels::Precision loss) {
    const auto model =
        make_model("mlp:784-16-10", {.features = 784, .classes = 10, .precision = lns16_f7, .loss_precision = loss});
    std::vector<float> parameters(model->element_count()), gradients(parameters.size());
    runtime::HostQueue queue;
    model->initialise(queue, {parameters, gradients}, 1);
    const Outcome outcome = model->pass(queue, {parameters, gradients}, {inputs, labels}, [](std::size_t) {}).get();
    for (const float g : gradients) EXPECT_EQ(g, static_cast<float>(lns.decode(lns.encode(double{g}))));
    const double codes = outcome.loss_sum * 128 / std::numbers::ln2;
    return std::fabs(codes - std::round(codes)) > 1e-6;
  };
  EXPECT_FALSE(rounds(lns16_f7)) << "the loss is a sum of codes";
  EXPECT_TRUE(rounds(fp32)) << "which a loss in fp32 is not";
}

}  // namespace
}  // namespace gradmeter::model
