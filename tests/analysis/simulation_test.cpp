// SPDX-License-Identifier: Apache-2.0
// What compare says of launches whose truth is known, over thousands of points: false alarms and power.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "analysis/comparison.hpp"
#include "support/sanitized.hpp"
#include "timed_launches.hpp"

namespace gradmeter::analysis {
namespace {

/// How a launch's median lies about the truth: all points of a launch share a part of it, and some launches are far
/// off.
struct Mood {
  const char* name;
  double spread;          ///< of a point in a launch, as a share
  double common;          ///< of a launch, the same for all its points
  double outlier_chance;  ///< of a launch that is a quarter slower
};

Side draw(const std::string& name, std::mt19937_64& random, const Mood& mood, double factor, std::size_t points) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  std::vector<std::vector<double>> times;
  for (int launch = 0; launch < 5; ++launch) {
    double common = mood.common * normal(random);
    if (uniform(random) < mood.outlier_chance) common += std::log(1.25);
    std::vector<double> of_launch;
    for (std::size_t i = 0; i < points; ++i) {
      of_launch.push_back(factor * static_cast<double>(i + 1) * std::exp(common + mood.spread * normal(random)));
    }
    times.push_back(std::move(of_launch));
  }
  return timed_side(name, times);
}

/// Shares of points over many comparisons.
struct Shares {
  double different, slower, same;
};
Shares simulate(const Mood& mood, double factor, int comparisons) {
  if (test::sanitized) comparisons = 3;
  std::mt19937_64 random(7);
  constexpr std::size_t points = 20;
  std::size_t different = 0, slower = 0, same = 0;
  for (int i = 0; i < comparisons; ++i) {
    const auto c = compare(draw("a", random, mood, 1, points), draw("b", random, mood, factor, points), {}, 0.05);
    slower += c.count(Verdict::slower);
    different += c.count(Verdict::slower) + c.count(Verdict::faster);
    same += c.count(Verdict::same);
  }
  const double all = static_cast<double>(points) * comparisons;
  return {static_cast<double>(different) / all, static_cast<double>(slower) / all, static_cast<double>(same) / all};
}

constexpr Mood calm{"calm", 0.005, 0.002, 0}, usual{"usual", 0.02, 0.01, 0}, shared{"shared", 0.005, 0.03, 0},
    rough{"rough", 0.05, 0.02, 0.1};

// Under a sanitizer shares of so few points say nothing: only how memory is used is checked.
constexpr double tolerated(double share) { return test::sanitized ? 1 : share; }
constexpr double wanted(double share) { return test::sanitized ? 0 : share; }

TEST(Simulation, EqualSidesAreCalledDifferentInAtMostOneOfTwentyPoints) {
  for (const Mood& mood : {calm, usual, shared, rough}) {
    const Shares s = simulate(mood, 1, 250);
    EXPECT_LE(s.different, tolerated(0.025)) << mood.name;  // without the adjustment 0.05 is usual
    RecordProperty(mood.name, std::to_string(s.different));
  }
  EXPECT_GE(simulate(calm, 1, 100).same, wanted(0.99));
}

TEST(Simulation, ATenthSlowerIsFoundWhereLaunchesAgreeAndNeverCalledTheSame) {
  EXPECT_GE(simulate(calm, 1.1, 100).slower, wanted(0.999));
  EXPECT_GE(simulate(usual, 1.1, 100).slower, wanted(0.95));
  for (const Mood& mood : {calm, usual, shared, rough}) EXPECT_EQ(simulate(mood, 1.1, 250).same, 0) << mood.name;
}

TEST(Simulation, TwoPercentIsFoundInCalmLaunches) { EXPECT_GE(simulate(calm, 1.02, 100).slower, wanted(0.9)); }

}  // namespace
}  // namespace gradmeter::analysis
