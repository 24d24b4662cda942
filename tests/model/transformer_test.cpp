// SPDX-License-Identifier: Apache-2.0
// The layers of a transformer: gradients against central differences in float64 on random odd shapes, and causality.
#include "model/registry.hpp"

#include "core/error.hpp"
#include "model/layers/layers.hpp"
#include "model/network/network.hpp"
#include "model/slopes.hpp"

namespace gradmeter::model {
namespace {

using Parameters = std::vector<Doubles>;

Doubles normalised(const Parameters& p, const Doubles& x) {
  const std::size_t width = p[0].size();
  Doubles y(x.size());
  for (std::size_t at = 0; at < x.size(); at += width) {
    double mean = 0, variance = 0;
    for (std::size_t j = 0; j < width; ++j) mean += x[at + j] / static_cast<double>(width);
    for (std::size_t j = 0; j < width; ++j) variance += std::pow(x[at + j] - mean, 2) / static_cast<double>(width);
    for (std::size_t j = 0; j < width; ++j)
      y[at + j] = (x[at + j] - mean) / std::sqrt(variance + 1e-5) * p[0][j] + p[1][j];
  }
  return y;
}

Doubles gelus(Doubles x) {
  for (double& v : x) v *= 0.5 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
  return x;
}

Doubles linear(const Doubles& weight, const Doubles& bias, const Doubles& x) {
  const std::size_t out = bias.size(), in = weight.size() / out;
  Doubles y;
  for (std::size_t at = 0; at < x.size(); at += in)
    for (std::size_t o = 0; o < out; ++o) {
      double sum = bias[o];
      for (std::size_t i = 0; i < in; ++i) sum += weight[o * in + i] * x[at + i];
      y.push_back(sum);
    }
  return y;
}

struct HeadShape {
  std::size_t steps, heads, width;  ///< width: of one head
  std::size_t all() const { return heads * width; }
};

/// The context of one head at one step, added to `to`; x: the sentence's queries, keys and values.
void attend(const HeadShape& s, const double* x, std::size_t head, std::size_t step, double* to) {
  const auto at = [&](std::size_t t, std::size_t part) { return x + (t * 3 + part) * s.all() + head * s.width; };
  Doubles share;
  double sum = 0;
  for (std::size_t t = 0; t <= step; ++t) {
    double score = 0;
    for (std::size_t i = 0; i < s.width; ++i) score += at(step, 0)[i] * at(t, 1)[i];
    sum += share.emplace_back(std::exp(score / std::sqrt(static_cast<double>(s.width))));
  }
  for (std::size_t t = 0; t <= step; ++t)
    for (std::size_t i = 0; i < s.width; ++i) to[i] += share[t] / sum * at(t, 2)[i];
}

Doubles attended(const HeadShape& s, const Doubles& x) {
  Doubles y(x.size() / 3);
  for (std::size_t n = 0; n < y.size() / (s.steps * s.all()); ++n)
    for (std::size_t t = 0; t < s.steps; ++t)
      for (std::size_t h = 0; h < s.heads; ++h)
        attend(s, &x[n * s.steps * 3 * s.all()], h, t, &y[(n * s.steps + t) * s.all() + h * s.width]);
  return y;
}

class TransformerDifferences : public CentralDifferences {};

TEST_P(TransformerDifferences, OfALayerNormAreItsGradients) {
  Drawn draw(GetParam());
  const auto layer = make_layer_norm_layer({.steps = draw(5), .features = 2 + draw(40)});
  expect_slopes(*layer, draw(4), normalised, GetParam());
}

TEST_P(TransformerDifferences, OfAGeluAreItsGradients) {
  Drawn draw(GetParam() + 100);
  const auto layer = make_gelu_layer({.steps = draw(5), .features = draw(40)});
  expect_slopes(
      *layer, draw(4), [](const auto&, const auto& x) { return gelus(x); }, GetParam());
}

TEST_P(TransformerDifferences, OfPositionsAreTheirGradients) {
  Drawn draw(GetParam() + 200);
  const auto layer = make_positions_layer({.steps = draw(9), .features = draw(40)});
  expect_slopes(
      *layer, draw(4),
      [](const Parameters& p, Doubles x) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += p[0][i % p[0].size()];
        return x;
      },
      GetParam());
}

TEST_P(TransformerDifferences, OfAnAttentionLayerAreItsGradients) {
  Drawn draw(GetParam() + 300);
  const HeadShape s{.steps = draw(11), .heads = draw(5), .width = draw(9)};
  const auto layer = make_attention_layer(s.steps, {.width = s.all(), .heads = s.heads});
  expect_slopes(
      *layer, draw(4), [&](const auto&, const auto& x) { return attended(s, x); }, GetParam());
}

TEST_P(TransformerDifferences, OfAResidualLayerAreThoseOfItsLayersAndTheConnection) {
  Drawn draw(GetParam() + 400);
  const TokenShape tokens{.steps = draw(5), .features = 2 + draw(12)}, wide{tokens.steps, draw(17)};
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(make_layer_norm_layer(tokens));
  layers.push_back(make_step_dense_layer(tokens, wide.features));
  layers.push_back(make_gelu_layer(wide));
  layers.push_back(make_step_dense_layer(wide, tokens.features));
  const auto layer = make_residual_layer(std::move(layers));
  ASSERT_EQ(layer->tensors()[0].name, "4.weight");
  ASSERT_EQ(layer->tensors()[5].name, "1.bias");
  expect_slopes(
      *layer, draw(4),
      [](const Parameters& p, const Doubles& x) {
        Doubles y = linear(p[0], p[1], gelus(linear(p[2], p[3], normalised({p[4], p[5]}, x))));
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
        return y;
      },
      GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shapes, TransformerDifferences, testing::Range<std::uint64_t>(1, 25));

TEST(Residual, KeepsTheConnectionsGradientFromALayerThatOverwritesItsOwn) {
  kernels::set_compute_threads(1);
  if (!kernels::onednn_refusal().empty()) GTEST_SKIP() << kernels::onednn_refusal();
  const TokenShape tokens{.steps = 3, .features = 6};
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(make_step_dense_layer(tokens, 6, {.activation = kernels::Activation::relu}));
  const auto layer = make_residual_layer(std::move(layers));
  const LayerRun found(*layer, 5),
      inner(*make_step_dense_layer(tokens, 6, {.activation = kernels::Activation::relu}), 5);
  std::size_t dead = 0;
  for (std::size_t i = 0; i < found.output.size(); ++i) {
    dead += inner.output[i] == 0 ? 1 : 0;
    EXPECT_EQ(found.output[i], found.input[i] + inner.output[i]);
    EXPECT_EQ(found.input_gradient[i], inner.input_gradient[i] + found.output_gradient[i]);
  }
  EXPECT_GT(dead, 0U) << "a ReLU that overwrites nothing shows nothing";
}

TEST(Residual, RefusesLayersThatDoNotFit) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(make_step_dense_layer({.steps = 3, .features = 6}, 5));
  EXPECT_THROW((void)make_residual_layer(std::move(layers)), std::logic_error);
}

TEST(Transformer, TensorRanksMustShareItsHeadsAndUnitsEvenly) {
  const auto refusal = [](std::size_t heads, std::size_t ff, std::size_t ranks, kernels::Precision p) -> std::string {
    try {
      const TransformerOptions o{.steps = 6, .words = 16, .hidden = 12, .heads = heads, .ff = ff, .precision = p};
      (void)Network("small", make_transformer_layers(o), {.tensor_ranks = ranks});
    } catch (const core::UsageError& e) {
      return e.what();
    }
    return "no refusal";
  };
  constexpr auto fp32 = kernels::Precision::fp32;
  EXPECT_EQ(refusal(4, 20, 4, fp32), "no refusal");
  EXPECT_NE(refusal(2, 20, 4, fp32).find("2 heads, which 4 tensor ranks"), std::string::npos);
  EXPECT_NE(refusal(4, 21, 2, fp32).find("width 21, which 2 tensor ranks"), std::string::npos);
  EXPECT_NE(refusal(4, 20, 2, kernels::Precision::bf16).find("no pair of dense layers, in fp32"), std::string::npos);
}

TEST(Attention, RefusesHeadsThatDoNotDivideItsWidth) {
  EXPECT_THROW((void)make_attention_layer(3, {.width = 8, .heads = 3}), core::UsageError);
}

/// What a model's layers give for each step, with random weights.
class Logits {
 public:
  explicit Logits(const TransformerOptions& o) : o_(o), layers_(make_transformer_layers(o)) {
    for (const auto& l : layers_) {
      prepared_.push_back(l->prepare(1, l != layers_.front(), queue_.device()));
      auto& all = parameters_.emplace_back();
      for (const LayerTensor& t : l->tensors()) all.push_back(drawn(elements(t), seed_++, 0.3));
    }
  }
  /// [steps][words]
  std::vector<std::vector<float>> of(const std::vector<float>& tokens) {
    std::vector<float> x = tokens;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      std::vector<float> y(elements(layers_[l]->output()));
      const std::vector<runtime::ConstBuffer> parameters(parameters_[l].begin(), parameters_[l].end());
      prepared_[l]->forward({queue_, parameters, x, y});
      x = y;
    }
    std::vector<std::vector<float>> rows;
    for (auto row = x.begin(); row != x.end(); row += static_cast<std::ptrdiff_t>(o_.words))
      rows.emplace_back(row, row + static_cast<std::ptrdiff_t>(o_.words));
    return rows;
  }

 private:
  TransformerOptions o_;
  runtime::HostQueue queue_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::unique_ptr<PreparedLayer>> prepared_;
  std::vector<std::vector<std::vector<float>>> parameters_;
  std::uint64_t seed_ = 100;
};

TEST(Transformer, AStepDependsOnItselfAndThoseBeforeItAndOnNoLaterOne) {
  kernels::set_compute_threads(1);
  if (!kernels::onednn_refusal().empty()) GTEST_SKIP() << kernels::onednn_refusal();
  Logits logits({.steps = 7, .words = 11, .hidden = 12, .layers = 2, .heads = 3, .ff = 10});
  const std::vector<float> tokens{3, 0, 10, 4, 4, 7, 1};
  const auto before = logits.of(tokens);
  ASSERT_EQ(before.size(), tokens.size());
  for (std::size_t changed = 0; changed < tokens.size(); ++changed) {
    auto others = tokens;
    others[changed] = 5;
    const auto after = logits.of(others);
    for (std::size_t t = 0; t < tokens.size(); ++t)
      EXPECT_EQ(after[t] == before[t], t < changed) << "token " << changed << ", step " << t;
  }
}

}  // namespace
}  // namespace gradmeter::model
