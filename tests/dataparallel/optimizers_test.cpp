// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/optimizers/optimizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/random.hpp"

namespace gradmeter::dataparallel {
namespace {

using ::testing::HasSubstr;

std::vector<float> noise(std::size_t n, std::uint64_t stream) {
  const core::Random random(3, stream);
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(random.gaussian(i));
  return out;
}

std::string refusal(std::string_view name) {
  try {
    (void)make_optimizer(name, {.elements = 4});
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Optimizer, NamesAreCanonicalWithTheirDefaultsWrittenOut) {
  EXPECT_EQ(make_optimizer("sgd", {.elements = 4})->name(), "sgd");
  EXPECT_EQ(make_optimizer("momentum", {.elements = 4})->name(), "momentum:mu=0.9");
  EXPECT_EQ(make_optimizer("nesterov", {.elements = 4})->name(), "nesterov:mu=0.9");
  EXPECT_EQ(make_optimizer("momentum:mu=0.8", {.elements = 4})->name(), "momentum:mu=0.8");
}

TEST(Optimizer, EqualValuesWrittenDifferentlyHaveOneName) {
  EXPECT_EQ(make_optimizer("momentum:mu=0.90", {.elements = 4})->name(), "momentum:mu=0.9");
  EXPECT_EQ(make_optimizer("momentum:mu=9e-1", {.elements = 4})->name(), "momentum:mu=0.9");
  EXPECT_EQ(make_optimizer("nesterov:mu=0.0", {.elements = 4})->name(), "nesterov:mu=0");
}

TEST(Optimizer, ACanonicalNameMakesItselfAgain) {
  for (const auto& o : optimizers()) {
    const auto name = make_optimizer(o.name, {.elements = 4})->name();
    EXPECT_EQ(make_optimizer(name, {.elements = 4})->name(), name);
    EXPECT_FALSE(o.source.empty());
  }
}

TEST(Optimizer, AnUnknownNameIsRefusedWithAllThatThereAre) {
  const auto text = refusal("adagrad");
  for (const auto& o : optimizers()) EXPECT_THAT(text, HasSubstr(std::string(o.name)));
  EXPECT_THAT(text, HasSubstr("adagrad"));
}

TEST(Optimizer, ParametersThatMeanNothingAreRefused) {
  EXPECT_THAT(refusal("sgd:mu=0.9"), HasSubstr("takes no parameters"));
  EXPECT_THAT(refusal("momentum:nu=0.9"), HasSubstr("parameter of momentum"));
  EXPECT_THAT(refusal("momentum:0.9"), HasSubstr("takes no '0.9'"));
  for (const auto* value : {"1", "-0.1", "1.5", "nan", "inf", "x", "0.9x", "0,9"}) {
    EXPECT_NE(refusal(std::string("momentum:mu=") + value), "accepted") << value;
  }
}

TEST(Optimizer, TheUpdatesAreThoseOfTheirFormulas) {
  const std::size_t n = 37;
  const float step = 0.05f, mu = 0.8f;
  for (const std::string name : {"sgd", "momentum:mu=0.8", "nesterov:mu=0.8"}) {
    auto optimizer = make_optimizer(name, {.elements = n});
    auto w = noise(n, 0);
    std::vector<double> expected(w.begin(), w.end()), v(n, 0.0);
    for (std::uint64_t t = 1; t <= 5; ++t) {
      const auto g = noise(n, t);
      optimizer->apply(w, g, 0, {step, t});
      for (std::size_t i = 0; i < n; ++i) {
        v[i] = double(mu) * v[i] + g[i];
        double change = g[i];
        if (name[0] == 'm') change = v[i];
        if (name[0] == 'n') change = g[i] + double(mu) * v[i];
        expected[i] -= double(step) * change;
      }
    }
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(w[i], expected[i], 1e-5) << name << " at " << i;
  }
}

/// Tensors of `count` elements each, one behind the other.
std::vector<model::Tensor> equal_tensors(std::size_t n, std::size_t count) {
  std::vector<model::Tensor> out;
  for (std::size_t at = 0; at < n; at += count) out.push_back({"t", {}, at, std::min(count, n - at)});
  return out;
}

/// Five steps, bucket by bucket; `place` says at which offset a bucket's state lies.
std::vector<float> in_buckets(std::string_view name, std::size_t n, std::size_t bucket,
                              const std::function<std::size_t(std::size_t)>& place) {
  const auto tensors = equal_tensors(n, 8);
  auto optimizer = make_optimizer(name, {.elements = n, .tensors = tensors});
  auto w = noise(n, 0);
  for (std::uint64_t t = 1; t <= 5; ++t) {
    const auto g = noise(n, t);
    for (std::size_t at = 0; at < n; at += bucket) {
      const std::size_t count = std::min(bucket, n - at);
      optimizer->apply(std::span(w).subspan(at, count), std::span(g).subspan(at, count), place(at), {0.1f, t});
    }
  }
  return w;
}

TEST(Optimizer, BucketByBucketEqualsTheWholeToTheBit) {
  const std::size_t n = 1000;
  for (const auto& o : optimizers()) {
    const auto whole = in_buckets(o.name, n, n, [](std::size_t at) { return at; });
    for (const std::size_t bucket : {16u, 336u, 992u}) {
      EXPECT_EQ(in_buckets(o.name, n, bucket, [](std::size_t at) { return at; }), whole) << o.name << " " << bucket;
    }
  }
}

TEST(Optimizer, StateKeptAtTheWrongPlaceShows) {
  const auto right = in_buckets("momentum", 1000, 100, [](std::size_t at) { return at; });
  EXPECT_NE(in_buckets("momentum", 1000, 100, [](std::size_t) { return 0u; }), right);
}

TEST(Optimizer, WithZerosForItsStateItIsAsNew) {
  const std::size_t n = 64;
  const auto tensors = equal_tensors(n, 8);
  for (const auto& o : optimizers()) {
    const auto used = make_optimizer(o.name, {.elements = n, .tensors = tensors});
    const auto fresh = make_optimizer(o.name, {.elements = n, .tensors = tensors});
    auto w = noise(n, 0);
    for (std::uint64_t t = 1; t <= 3; ++t) used->apply(w, noise(n, t), 0, {0.1f, t});
    auto expected = w;
    for (const auto& b : used->state()) std::ranges::fill(b.values<float>(), 0.0f);
    used->apply(w, noise(n, 9), 0, {0.1f, 1});
    fresh->apply(expected, noise(n, 9), 0, {0.1f, 1});
    EXPECT_EQ(w, expected) << o.name;
  }
}

TEST(Optimizer, MomentumCostsMoreThanPlainDescent) {
  EXPECT_DOUBLE_EQ(make_optimizer("sgd", {.elements = 10})->cost(10).bytes, 120);
  EXPECT_DOUBLE_EQ(make_optimizer("momentum", {.elements = 10})->cost(10).bytes, 200);
  EXPECT_DOUBLE_EQ(make_optimizer("nesterov", {.elements = 10})->cost(5).bytes, 100);
}

}  // namespace
}  // namespace gradmeter::dataparallel
