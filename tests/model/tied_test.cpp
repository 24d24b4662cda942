// SPDX-License-Identifier: Apache-2.0
// Language models whose softmax has the embedding's weight, against the same with a copy of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "core/error.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/threads.hpp"
#include "model/data/sources.hpp"
#include "model/layers/layers.hpp"
#include "model/network/network.hpp"
#include "model/registry.hpp"

namespace gradmeter::model {
namespace {

using ByName = std::map<std::string, std::vector<float>>;

/// A model with its weights, and a pass of it over sentences.
class LanguageRun {
 public:
  explicit LanguageRun(const std::string& name)
      : data_(make_language("language:steps=5", {.samples = samples})),
        model_(make_model(name, {.features = 5, .classes = data_->classes(), .labels = 5})),
        parameters_(model_->element_count()),
        gradients_(model_->element_count()) {
    model_->initialise(queue_, {parameters_, gradients_}, 3);
  }

  ByName weights() const { return by_name(parameters_); }
  void set(const std::string& name, const std::vector<float>& values) {
    const Tensor& t = *std::ranges::find(model_->tensors(), name, &Tensor::name);
    ASSERT_EQ(t.count, values.size()) << name;
    std::ranges::copy(values, parameters_.begin() + static_cast<std::ptrdiff_t>(t.offset));
  }
  ByName gradients() {
    std::ranges::fill(gradients_, 7.0F);  // what is there is to be overwritten
    ready.clear();
    std::vector<float> inputs(samples * 5);
    std::vector<std::int32_t> labels(samples * 5);
    const std::vector<std::uint64_t> indices{0, 1, 2, 3, 4, 5, 6};
    gather(*data_, indices, inputs, labels);
    loss = model_
               ->pass(queue_, {parameters_, gradients_}, {inputs, labels, 5},
                      [this](std::size_t t) { ready.push_back(t); })
               .get()
               .mean_loss();
    return by_name(gradients_);
  }

  std::vector<std::size_t> ready;
  double loss = 0;

 private:
  static constexpr std::size_t samples = 7;
  ByName by_name(const std::vector<float>& flat) const {
    ByName all;
    for (const Tensor& t : model_->tensors()) {
      const auto first = flat.begin() + static_cast<std::ptrdiff_t>(t.offset);
      all[t.name] = {first, first + static_cast<std::ptrdiff_t>(t.count)};
    }
    return all;
  }

  std::shared_ptr<const Dataset> data_;
  std::unique_ptr<Model> model_;
  runtime::HostQueue queue_;
  std::vector<float> parameters_, gradients_;
};

class TiedSoftmax : public testing::TestWithParam<std::string> {};

TEST_P(TiedSoftmax, HasTheGradientsOfBothItsUses) {
  kernels::set_compute_threads(1);
  if (!kernels::onednn_refusal().empty()) GTEST_SKIP() << kernels::onednn_refusal();
  LanguageRun tied(GetParam() + ",tied=1"), apart(GetParam() + ",tied=0");
  const ByName weights = tied.weights();
  const std::string embedding = "layer1.weight";
  std::string softmax;
  for (const auto& [name, values] : apart.weights()) {
    if (!weights.contains(name)) softmax = name;
    apart.set(name, weights.at(weights.contains(name) ? name : embedding));
  }
  ASSERT_FALSE(softmax.empty());
  for (int pass = 0; pass < 2; ++pass) {  // a second time: nothing may be left of the first
    const ByName found = tied.gradients(), wanted = apart.gradients();
    EXPECT_EQ(tied.loss, apart.loss);
    ASSERT_EQ(found.size() + 1, wanted.size());
    for (std::size_t i = 0; i < tied.ready.size(); ++i) EXPECT_EQ(tied.ready[i], i);
    EXPECT_EQ(tied.ready.size(), found.size());
    for (const auto& [name, values] : found) {
      if (name != embedding) {
        EXPECT_EQ(values, wanted.at(name)) << name;
        continue;
      }
      double of_softmax = 0, of_embedding = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float up = wanted.at(softmax)[i], down = wanted.at(name)[i];
        of_softmax += std::fabs(up), of_embedding += std::fabs(down);
        ASSERT_NEAR(values[i], up + down, 1e-6) << name << " " << i;
      }
      EXPECT_TRUE(of_softmax > 1e-3 && of_embedding > 1e-3) << "one use alone shows nothing";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, TiedSoftmax,
                         testing::Values("lstm-lm:hidden=6", "rnn-lm:hidden=9,layers=2",
                                         "transformer-lm:ff=7,heads=2,hidden=10,layers=1"),
                         [](const auto& instance) { return instance.param.substr(0, instance.param.find('-')); });

TEST(TiedSoftmax, NeedsAFirstLayerWithAWeightOfItsShape) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(make_embedding_layer(3, 8, 5, Weight::tied));
  layers.push_back(make_step_dense_layer({.steps = 3, .features = 5}, 7, {.weight = Weight::tied}));
  EXPECT_THROW(Network("wrong", std::move(layers)), core::UsageError);
}

TEST(TiedSoftmax, OnAnotherStageMustBeTheLastLayer) {
  const auto layers_that_end_in = [](std::size_t others) {
    std::vector<std::unique_ptr<Layer>> layers;
    layers.push_back(make_embedding_layer(3, 8, 8, Weight::tied));
    layers.push_back(make_step_dense_layer({.steps = 3, .features = 8}, 8, {.weight = Weight::tied}));
    for (std::size_t i = 0; i < others; ++i) layers.push_back(make_step_dense_layer({.steps = 3, .features = 8}, 5));
    return layers;
  };
  EXPECT_NO_THROW(Network("last", layers_that_end_in(0), {.stages = 2}));
  EXPECT_NO_THROW(Network("on one stage", layers_that_end_in(1), {.stages = 2}));
  EXPECT_THROW(Network("between", layers_that_end_in(1), {.stages = 3}), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::model
