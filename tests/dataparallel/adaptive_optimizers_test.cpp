// SPDX-License-Identifier: Apache-2.0
// Adam, AdamW, LARS and LAMB against their papers' formulas, written out in float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/random.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/strategy.hpp"
#include "kernels/host/threads.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr float step_size = 0.05f;
constexpr std::uint64_t steps = 6;

std::vector<float> noise(std::size_t n, std::uint64_t stream) {
  const core::Random random(11, stream);
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(random.gaussian(i));
  return out;
}

/// Three tensors of different size and scale, and a gap between two of them, as padding is.
struct Net {
  std::vector<model::Tensor> tensors{{"out", {3, 4}, 0, 12}, {"bias", {5}, 16, 5}, {"in", {7, 9}, 21, 63}};
  std::size_t elements = 84;
  OptimizerScope scope() const { return {.elements = elements, .tensors = tensors}; }

  std::vector<float> filled(std::uint64_t stream) const {
    const auto values = noise(elements, stream);
    std::vector<float> out(elements, 0.0f);
    float scale = 1;
    for (const auto& t : tensors) {
      for (std::size_t i = t.offset; i < t.offset + t.count; ++i) out[i] = scale * values[i];
      scale *= 4;
    }
    return out;
  }
  std::vector<float> weights() const { return filled(0); }
  std::vector<float> gradient(std::uint64_t step) const { return filled(step); }
};

using Doubles = std::vector<double>;

double norm(const Doubles& x, const model::Tensor& t) {
  double sum = 0;
  for (std::size_t i = t.offset; i < t.offset + t.count; ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

/// The papers' optimizers, written as plainly as there.
struct Reference {
  Doubles w, m, v;
  explicit Reference(const std::vector<float>& weights)
      : w(weights.begin(), weights.end()), m(w.size(), 0.0), v(w.size(), 0.0) {}

  Doubles adam_direction(const std::vector<float>& g, std::uint64_t t, double epsilon) {
    const double beta1 = 0.9, beta2 = 0.999;
    Doubles direction(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * double{g[i]};
      v[i] = beta2 * v[i] + (1 - beta2) * double{g[i]} * double{g[i]};
      const double m_hat = m[i] / (1 - std::pow(beta1, t)), v_hat = v[i] / (1 - std::pow(beta2, t));
      direction[i] = m_hat / (std::sqrt(v_hat) + epsilon);
    }
    return direction;
  }
  void adam(const std::vector<float>& g, std::uint64_t t, double epsilon, double decay) {
    const Doubles direction = adam_direction(g, t, epsilon);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= double{step_size} * (direction[i] + decay * w[i]);
  }
  void lamb(const Net& net, const std::vector<float>& g, std::uint64_t t, double decay) {
    Doubles r = adam_direction(g, t, 1e-6);
    for (std::size_t i = 0; i < w.size(); ++i) r[i] += decay * w[i];
    for (const auto& x : net.tensors) {
      const double trust = norm(w, x) / norm(r, x);
      for (std::size_t i = x.offset; i < x.offset + x.count; ++i) w[i] -= double{step_size} * trust * r[i];
    }
  }
  void lars(const Net& net, const std::vector<float>& g, double mu, double eta, double decay) {
    const Doubles gradient(g.begin(), g.end());
    for (const auto& x : net.tensors) {
      const double trust = eta * norm(w, x) / (norm(gradient, x) + decay * norm(w, x));
      for (std::size_t i = x.offset; i < x.offset + x.count; ++i) {
        m[i] = mu * m[i] + double{step_size} * trust * (gradient[i] + decay * w[i]);
        w[i] -= m[i];
      }
    }
  }
};

void advance(Reference& r, const Net& net, std::string_view name, std::uint64_t t) {
  const auto g = net.gradient(t);
  if (name == "adam") r.adam(g, t, 1e-8, 0);
  if (name == "adam:epsilon=0.5") r.adam(g, t, 0.5, 0);
  if (name == "adamw:decay=0.1") r.adam(g, t, 1e-8, 0.1);
  if (name == "lamb:decay=0.1") r.lamb(net, g, t, 0.1);
  if (name == "lars:decay=0.1,eta=0.2,mu=0.8") r.lars(net, g, 0.8, 0.2, 0.1);
}
constexpr std::string_view names[] = {"adam", "adam:epsilon=0.5", "adamw:decay=0.1", "lamb:decay=0.1",
                                      "lars:decay=0.1,eta=0.2,mu=0.8"};

std::vector<float> trained(std::string_view name, const Net& net) {
  const auto rule = make_optimizer(name, net.scope());
  auto w = net.weights();
  for (std::uint64_t t = 1; t <= steps; ++t) rule->apply(w, net.gradient(t), 0, {step_size, t});
  return w;
}

double largest_difference(const std::vector<float>& w, const Doubles& expected) {
  double largest = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    largest = std::max(largest, std::fabs(double{w[i]} - expected[i]) / (1 + std::fabs(expected[i])));
  }
  return largest;
}

TEST(AdaptiveOptimizer, TheUpdatesAreThoseOfThePapers) {
  const Net net;
  for (const auto name : names) {
    Reference reference(net.weights());
    for (std::uint64_t t = 1; t <= steps; ++t) advance(reference, net, name, t);
    EXPECT_LT(largest_difference(trained(name, net), reference.w), 2e-6) << name;
  }
}

// The control: with another optimizer's formula, or the other place of epsilon, the same comparison fails.
TEST(AdaptiveOptimizer, ADecayThatIsOneInFp32IsRefused) {
  EXPECT_NO_THROW(make_optimizer("adam:beta2=0.9999", {}));
  EXPECT_THROW(make_optimizer("adam:beta2=0.99999999", {}), core::UsageError) << "nothing is left to divide by";
}

TEST(AdaptiveOptimizer, AnotherFormulaShows) {
  const Net net;
  for (const auto name : names) {
    for (const auto other : names) {
      if (name == other) continue;
      Reference reference(net.weights());
      for (std::uint64_t t = 1; t <= steps; ++t) advance(reference, net, other, t);
      EXPECT_GT(largest_difference(trained(name, net), reference.w), 1e-3) << name << " as " << other;
    }
  }
  Reference other_place(net.weights());
  for (std::uint64_t t = 1; t <= steps; ++t) {
    other_place.adam(net.gradient(t), t, 0.5 / std::sqrt(1 - std::pow(0.999, t)), 0);
  }
  EXPECT_GT(largest_difference(trained("adam:epsilon=0.5", net), other_place.w), 1e-3);
}

TEST(AdaptiveOptimizer, BucketsOfWholeTensorsEqualTheWholeToTheBit) {
  const Net net;
  for (const auto name : names) {
    const auto whole = trained(name, net);
    for (const std::size_t bucket_bytes : {4u, 90u}) {
      const auto rule = make_optimizer(name, net.scope());
      auto w = net.weights();
      for (std::uint64_t t = 1; t <= steps; ++t) {
        const auto g = net.gradient(t);
        for (const Bucket& b : make_buckets(net.tensors, net.elements, bucket_bytes)) {
          rule->apply(std::span(w).subspan(b.offset, b.count), std::span(g).subspan(b.offset, b.count), b.offset,
                      {step_size, t});
        }
      }
      EXPECT_EQ(w, whole) << name << ", buckets of " << bucket_bytes;
    }
  }
}

TEST(AdaptiveOptimizer, NormsOfOtherTensorsShow) {
  Net net, joined;
  joined.tensors = {{"all", {84}, 0, 84}};
  for (const std::string_view name : {"lars", "lamb"}) {
    const auto rule = make_optimizer(name, joined.scope());
    auto w = net.weights();
    for (std::uint64_t t = 1; t <= steps; ++t) rule->apply(w, net.gradient(t), 0, {step_size, t});
    EXPECT_NE(w, trained(name, net)) << name;
  }
}

TEST(AdaptiveOptimizer, PartsOfATensorAreRefusedByRulesThatTakeNorms) {
  const Net net;
  for (const auto& o : optimizers()) {
    const auto rule = make_optimizer(o.name, net.scope());
    auto w = net.weights();
    const auto g = net.gradient(1);
    const auto first = [&](std::size_t count) {
      rule->apply(std::span(w).first(count), std::span(g).first(count), 0, {});
    };
    EXPECT_NO_THROW(first(21)) << o.name;
    if (rule->needs_whole_tensors()) {
      EXPECT_THROW(first(22), std::logic_error) << o.name;
      EXPECT_THROW(first(11), std::logic_error) << o.name;
    } else {
      EXPECT_NO_THROW(first(22)) << o.name;
    }
    EXPECT_EQ(rule->needs_whole_tensors(), o.name == "lars" || o.name == "lamb");
  }
}

/// The sums of as many optimizers as there are parts, one after another: what ranks do at once.
class Parts final : public SumsOverRanks {
 public:
  void sum(std::span<double> values) override {
    if (collects) {
      all.resize(values.size(), 0.0);
      for (std::size_t i = 0; i < values.size(); ++i) all[i] += values[i];
    } else {
      std::ranges::copy(all, values.begin());
    }
    ++calls;
  }
  bool collects = true;
  std::vector<double> all;
  int calls = 0;
};

/// A step of an optimizer whose tensors are cut in two: elements with an even number, and the others.
std::vector<float> trained_in_parts(std::string_view name, const Net& net) {
  Parts sums;
  const auto halves = net.weights().size() / 2;
  std::vector<std::vector<float>> w(2, std::vector<float>(halves)), g = w;
  const std::vector<model::Tensor> tensors{{"first", {16}, 0, 16, true}, {"second", {26}, 16, 26, true}};
  const OptimizerScope scope{.elements = halves, .tensors = tensors, .part_sums = &sums};
  std::vector<std::unique_ptr<Optimizer>> rules;
  const auto weights = net.weights();
  for (std::size_t k = 0; k < 2; ++k) {
    rules.push_back(make_optimizer(name, scope));
    for (std::size_t i = 0; i < halves; ++i) w[k][i] = weights[2 * i + k];
  }
  for (std::uint64_t t = 1; t <= steps; ++t) {
    const auto gradient = net.gradient(t);
    sums.all.clear();
    sums.collects = true;
    for (std::size_t k = 0; k < 2; ++k) {
      for (std::size_t i = 0; i < halves; ++i) g[k][i] = gradient[2 * i + k];
      rules[k]->measure(w[k], g[k], 0, {step_size, t});
      rules[k]->share_norms();
    }
    sums.collects = false;
    for (std::size_t k = 0; k < 2; ++k) {
      rules[k]->share_norms();
      rules[k]->apply(w[k], g[k], 0, {step_size, t});
    }
  }
  EXPECT_EQ(sums.calls, int(4 * steps)) << "one exchange for all tensors of a range";
  std::vector<float> out(weights.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = w[i % 2][i / 2];
  return out;
}

TEST(AdaptiveOptimizer, PartsWithTheirNormsSummedAreTheWholeTensor) {
  Net net;
  net.tensors = {{"first", {32}, 0, 32}, {"second", {52}, 32, 52}};
  for (const std::string_view name : {"lars:decay=0.1,eta=0.2,mu=0.8", "lamb:decay=0.1"}) {
    const auto whole = trained(name, net), parts = trained_in_parts(name, net);
    for (std::size_t i = 0; i < whole.size(); ++i)
      ASSERT_NEAR(parts[i], whole[i], 1e-6 * (1 + std::fabs(whole[i]))) << name;
  }
}

TEST(AdaptiveOptimizer, PartsWhoseNormsNobodySharedAreRefused) {
  Parts sums;
  const std::vector<model::Tensor> tensors{{"part", {4}, 0, 4, true}};
  std::vector<float> w(4, 1.0f);
  const std::vector<float> g(4, 1.0f);
  for (const std::string_view name : {"lars", "lamb"}) {
    const auto rule = make_optimizer(name, {.elements = 4, .tensors = tensors, .part_sums = &sums});
    EXPECT_THROW(rule->apply(w, g, 0, {0.5f, 1}), std::logic_error) << name;
  }
}

// A tensor of zeros (a new bias) must be able to leave zero, and one without gradient must stay where it is.
TEST(AdaptiveOptimizer, ZerosGiveATrustOfOne) {
  const std::vector<model::Tensor> tensors{{"new", {4}, 0, 4}, {"still", {4}, 4, 4}};
  const std::vector<float> g{1, -2, 3, -4, 0, 0, 0, 0};
  for (const std::string_view name : {"lars", "lamb:decay=0"}) {
    const auto rule = make_optimizer(name, {.elements = 8, .tensors = tensors});
    std::vector<float> w{0, 0, 0, 0, 1, 2, 3, 4};
    rule->apply(w, g, 0, {0.5f, 1});
    for (std::size_t i = 0; i < 4; ++i) {
      const double expected = name == "lars" ? -0.5 * g[i] : g[i] > 0 ? -0.5 : 0.5;
      EXPECT_NEAR(w[i], expected, 1e-5) << name;
    }
    EXPECT_THAT(std::span(w).subspan(4), testing::ElementsAre(1, 2, 3, 4)) << name;
  }
}

TEST(AdaptiveOptimizer, TheNumberOfThreadsChangesNoBit) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not know OpenMP's barriers";
#endif
  const std::size_t n = 300000;
  const auto once = [&](std::string_view name, int threads) {
    kernels::set_compute_threads(threads);
    const auto rule = make_optimizer(name, {.elements = n});
    auto w = noise(n, 0);
    for (std::uint64_t t = 1; t <= 2; ++t) rule->apply(w, noise(n, t), 0, {step_size, t});
    kernels::set_compute_threads(1);
    return w;
  };
  for (const std::string_view name : {"lars", "lamb"}) EXPECT_EQ(once(name, 3), once(name, 1)) << name;
}

/// Σ h_i x_i²/2 with h from 0.1 to 1: the loss after 200 steps, over that of the start.
double remaining_loss(std::string_view name, float size, float sign) {
  const std::size_t n = 32;
  const auto h = [](std::size_t i) { return 0.1f + 0.9f * static_cast<float>(i) / 31.0f; };
  const std::vector<model::Tensor> tensors{{"a", {8}, 0, 8}, {"b", {24}, 8, 24}};
  const auto rule = make_optimizer(name, {.elements = n, .tensors = tensors});
  auto x = noise(n, 0);
  const auto loss = [&] {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += 0.5 * double{h(i)} * double{x[i]} * double{x[i]};
    return sum;
  };
  const double start = loss();
  std::vector<float> g(n);
  for (std::uint64_t t = 1; t <= 200; ++t) {
    for (std::size_t i = 0; i < n; ++i) g[i] = sign * h(i) * x[i];
    rule->apply(x, g, 0, {size * (1 - static_cast<float>(t) / 201.0f), t});
  }
  return loss() / start;
}

TEST(AdaptiveOptimizer, DescendsAQuadraticAndClimbsItBackwards) {
  for (const std::string_view name : {"adam", "adamw:decay=0.01", "lamb", "lars:eta=1"}) {
    EXPECT_LT(remaining_loss(name, 0.05f, 1), 0.02) << name;
    EXPECT_GT(remaining_loss(name, 0.05f, -1), 2) << name;
  }
}

TEST(AdaptiveOptimizer, CostsAreTheArraysRead) {
  const auto bytes = [](std::string_view name) { return make_optimizer(name, {.elements = 10})->cost(10).bytes; };
  EXPECT_DOUBLE_EQ(bytes("adam"), 280);   // w, m, v read and written, g read
  EXPECT_DOUBLE_EQ(bytes("adamw"), 360);  // w once more
  EXPECT_DOUBLE_EQ(bytes("adamw:decay=0"), 280);
  EXPECT_DOUBLE_EQ(bytes("lars"), 280);  // w and g read for the norms; w, v read and written, g read
  EXPECT_DOUBLE_EQ(bytes("lamb"), 400);  // averages and norms: w, g, m, v and m, v; step: w, m, v and w
}

TEST(AdaptiveOptimizer, NamesHaveTheirDefaultsWrittenOut) {
  EXPECT_EQ(make_optimizer("adam", {.elements = 1})->name(), "adam:beta1=0.9,beta2=0.999,epsilon=1e-08");
  EXPECT_EQ(make_optimizer("adamw:decay=0.1", {.elements = 1})->name(),
            "adamw:beta1=0.9,beta2=0.999,decay=0.1,epsilon=1e-08");
  EXPECT_EQ(make_optimizer("lars", {.elements = 1})->name(), "lars:decay=0,eta=0.001,mu=0.9");
  EXPECT_EQ(make_optimizer("lamb", {.elements = 1})->name(), "lamb:beta1=0.9,beta2=0.999,decay=0.01,epsilon=1e-06");
}

}  // namespace
}  // namespace gradmeter::dataparallel
