// SPDX-License-Identifier: Apache-2.0
#include "runtime/clock.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace gradmeter::runtime {
namespace {

constexpr double ppm = 1e-6, us = 1e-6;
/// A clock since long ago, and a reference since yesterday: differences of both must not lose their digits.
constexpr double begin = 3e6, ahead = -2.9e6;

double truth(double at, double rate) { return ahead + rate * (at - begin); }

/// Within the uncertainty, but as far off as it may be, and not always to the same side.
double error(int i) { return (i % 3 == 0 ? 1 : i % 3 == 1 ? -1 : 0.5) * us; }

DriftModel synchronised(double rate, int times, double each_s) {
  DriftModel m;
  for (int i = 0; i < times; ++i) {
    const double at = begin + i * each_s;
    m.add({.at = at, .offset = truth(at, rate) + error(i), .uncertainty = 1 * us});
  }
  return m;
}

TEST(DriftModel, WithoutAnySynchronisationTheOwnClockIsTheReference) {
  const DriftModel m;
  EXPECT_EQ(m.offset(1e6), 0);
  EXPECT_EQ(m.uncertainty(1e6), 0);
  EXPECT_EQ(m.reference(7), 7);
  EXPECT_EQ(m.local(7), 7);
}

TEST(DriftModel, AfterOneTheRateMayBeWhatAKernelMaySet) {
  const DriftModel m = synchronised(0, 1, 1);
  EXPECT_DOUBLE_EQ(m.uncertainty(begin), 1 * us);
  EXPECT_NEAR(m.uncertainty(begin + 1), 501 * us, 1e-9);
  EXPECT_NEAR(m.uncertainty(begin - 1), 501 * us, 1e-9);
}

TEST(DriftModel, TheErrorIsWithinTheUncertaintyForEveryRate) {
  for (const double rate : {0.0, 20 * ppm, -200 * ppm, 490 * ppm}) {
    for (const int times : {1, 2, 3, 16, 40}) {
      const DriftModel m = synchronised(rate, times, 0.25);
      for (double at = begin - 1; at < begin + 20; at += 0.37) {
        EXPECT_LE(std::fabs(m.offset(at) - truth(at, rate)), m.uncertainty(at) + 1e-9) << rate << " " << times;
      }
    }
  }
}

TEST(DriftModel, TwentyPpmOverTenSecondsBecomeMicrosecondsAfterAFewSynchronisations) {
  const double at = begin + 10;
  EXPECT_NEAR(std::fabs(synchronised(20 * ppm, 1, 0.25).offset(at) - truth(at, 20 * ppm)), 200 * us, 2 * us)
      << "the control: one synchronisation alone";
  const DriftModel m = synchronised(20 * ppm, 38, 0.25);
  EXPECT_LT(std::fabs(m.offset(at) - truth(at, 20 * ppm)), 3 * us);
  EXPECT_LT(m.uncertainty(at), 4 * us);
}

TEST(DriftModel, UncertaintyAges) {
  const DriftModel m = synchronised(20 * ppm, 16, 0.25);
  double before = 0;
  for (double age = 0; age < 100; age += 5) {
    EXPECT_GT(m.uncertainty(begin + 3.75 + age), before);
    before = m.uncertainty(begin + 3.75 + age);
  }
  EXPECT_GT(before, 50 * us);
}

TEST(DriftModel, BothWaysAreInverse) {
  const DriftModel m = synchronised(200 * ppm, 5, 1);
  for (const double at : {begin, begin + 3, begin + 1000}) EXPECT_NEAR(m.local(m.reference(at)), at, 2e-9);
}

TEST(DriftModel, AChangeOfTheRateStartsANewLine) {
  DriftModel m = synchronised(0, 16, 0.25);
  for (int i = 0; i < 8; ++i) {  // 100 ppm from 4 s on
    const double at = begin + 4 + 0.25 * i;
    m.add({.at = at, .offset = ahead + 100 * ppm * (at - begin - 4), .uncertainty = 1 * us});
  }
  const double at = begin + 6;
  EXPECT_NEAR(m.offset(at), ahead + 200 * us, 8 * us);
  EXPECT_LE(std::fabs(m.offset(at) - ahead - 200 * us), m.uncertainty(at));
}

}  // namespace
}  // namespace gradmeter::runtime
