// SPDX-License-Identifier: Apache-2.0
#include "compression/codecs/sparse.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compression/support.hpp"
#include "core/error.hpp"

namespace gradmeter::compression {
namespace {

RandomK random_k(std::string_view name) { return RandomK(find_codec(name)->parsed); }

std::vector<std::uint32_t> places_of(const RandomK& r, const RandomDraw& draw, std::size_t n) {
  std::vector<std::uint32_t> places(r.kept(n));
  r.draw_places(draw, n, places);
  return places;
}

TEST(RandomK, PlacesAreDistinctAscendingAndInside) {
  for (const auto* name : {"randomk", "randomk:density=0.3", "randomk:density=0.7", "randomk:density=1"}) {
    for (const std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{1000}, (std::size_t{1} << 24) + 1}) {
      const auto places = places_of(random_k(name), {.seed = 1, .step = n}, n);
      ASSERT_LT(places.back(), n);
      EXPECT_EQ(std::adjacent_find(places.begin(), places.end(), std::greater_equal<>()), places.end()) << name << n;
    }
  }
  EXPECT_TRUE(places_of(random_k("randomk"), {}, 0).empty());
}

TEST(RandomK, RanksAgreeAndStepsDiffer) {
  const RandomK r = random_k("randomk:density=0.1");
  const auto base = places_of(r, {.seed = 1, .step = 2, .tensor = 3}, 5000);
  EXPECT_EQ(places_of(r, {.seed = 1, .step = 2, .tensor = 3, .rank = 5, .phase = 6, .first = 7}, 5000), base);
  EXPECT_NE(places_of(r, {.seed = 2, .step = 2, .tensor = 3}, 5000), base);
  EXPECT_NE(places_of(r, {.seed = 1, .step = 3, .tensor = 3}, 5000), base);
  EXPECT_NE(places_of(r, {.seed = 1, .step = 2, .tensor = 4}, 5000), base);
}

TEST(RandomK, EveryElementIsSentEquallyOften) {
  constexpr std::size_t n = 23, trials = 40'000;  // 5 of 23: pieces of 4 and 5
  const RandomK r = random_k("randomk:density=0.2");
  std::vector<double> counts(n);
  for (std::size_t t = 0; t < trials; ++t) {
    for (const auto place : places_of(r, {.step = t}, n)) counts[place] += 1;
  }
  const double p = 5.0 / n, sigma = std::sqrt(trials * p * (1 - p));
  for (const double c : counts) EXPECT_NEAR(c, trials * p, 4.5 * sigma);
  EXPECT_LT(4.5 * sigma, 0.05 * trials * p);
}

/// Energies of C - x over many steps.
std::vector<double> energies(std::string_view name, std::span<const float> x, std::vector<double>* sum = nullptr) {
  const RandomK r = random_k(name);
  std::vector<double> out;
  for (std::uint64_t t = 0; t < 4000; ++t) {
    const auto places = places_of(r, {.step = t}, x.size());
    std::vector<float> values(places.size()), back(x.size(), 9.0F);
    r.gather(x, places, values);
    RandomK::scatter(values, places, back);
    double e = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      e += std::pow(double{back[i]} - double{x[i]}, 2);
      if (sum) (*sum)[i] += double{back[i]};
    }
    out.push_back(e);
  }
  return out;
}

TEST(RandomK, LosesItsShareOfTheEnergy) {
  const auto x = gaussians(1000);
  const double all = std::pow(length(x), 2);
  const Estimate plain = estimate(energies("randomk:density=0.1,ef=on", x));
  EXPECT_NEAR(plain.mean, 0.9 * all, 5 * plain.error);
  expect_mean(energies("randomk:density=0.1,ef=off", x), 9 * all);
}

TEST(RandomK, WithoutFeedbackItIsScaledAndUnbiased) {
  const auto x = gaussians(200);
  std::vector<double> sum(x.size());
  energies("randomk:density=0.25,ef=off", x, &sum);
  double along = 0, all = 0;
  for (std::size_t i = 0; i < x.size(); ++i) along += sum[i] / 4000 * double{x[i]}, all += double{x[i]} * double{x[i]};
  EXPECT_NEAR(along / all, 1, 0.02);
}

TEST(RandomK, WithFeedbackAllThatWasGivenArrivesOrIsKept) {
  EXPECT_TRUE(find_codec("randomk")->feedback) << "the method of its sources";
  const RandomK r = random_k("randomk:density=0.1");
  const auto x = gaussians(200);
  constexpr std::uint64_t steps = 300;
  std::vector<float> residual(x.size());
  std::vector<double> arrived(x.size());
  for (std::uint64_t t = 0; t < steps; ++t) {
    const auto places = places_of(r, {.step = t}, x.size());
    std::vector<float> values(places.size()), back(x.size());
    r.take_from_residual(x, places, residual, values);
    RandomK::scatter(values, places, back);
    for (std::size_t i = 0; i < x.size(); ++i) arrived[i] += double{back[i]};
  }
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(arrived[i] + double{residual[i]}, double(steps) * double{x[i]}, 1e-3 * steps * std::abs(x[i])) << i;
}

TEST(RandomK, WhatIsSentIsClearedFromTheResidual) {
  const RandomK r = random_k("randomk:density=0.1");
  const auto x = gaussians(500);
  const auto places = places_of(r, {}, x.size());
  std::vector<float> values(places.size()), back(x.size()), left = x;
  r.gather(x, places, values);
  RandomK::scatter(values, places, back);
  RandomK::clear_sent(places, left);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(back[i] + left[i], x[i]);
}

TEST(RandomK, WhatIsNotFiniteIsSentInItsStepAndNotKept) {
  const RandomK r = random_k("randomk:density=0.1");
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    auto x = gaussians(200);
    const auto places = places_of(r, {}, x.size());
    std::size_t kept_back = 0;
    while (std::ranges::find(places, kept_back) != places.end()) ++kept_back;
    x[kept_back] = bad;
    std::vector<float> residual(x.size(), 1.0f), values(places.size());
    r.take_from_residual(x, places, residual, values);
    for (const float v : values) ASSERT_TRUE(std::isnan(v));
    for (const float v : residual) ASSERT_EQ(v, 0.0f);
  }
}

TEST(RandomK, RefusesWhatCannotWork) {
  for (const auto* bad : {"randomk:density=0", "randomk:ef=yes", "randomk:scale=on"}) {
    EXPECT_THROW(find_codec(bad), core::UsageError) << bad;
  }
  std::vector<std::uint32_t> places(1);
  EXPECT_THROW(random_k("randomk").draw_places({}, (std::size_t{1} << 32) + 1, places), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::compression
