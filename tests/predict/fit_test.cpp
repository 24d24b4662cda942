// SPDX-License-Identifier: Apache-2.0
#include "predict/fit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace gradmeter::predict {
namespace {

/// y = a · x + b, of which a and b are asked.
std::vector<Residual> line(double a, double b, double one_wrong = 1) {
  std::vector<Residual> out;
  for (int i = 1; i <= 20; ++i) {
    const double x = i, y = (a * x + b) * (i == 7 ? one_wrong : 1);
    out.emplace_back(
        [x, y](std::span<const double> logs) { return std::log((std::exp(logs[0]) * x + std::exp(logs[1])) / y); });
  }
  return out;
}
const std::vector<Prior> wide{{1, 2}, {1, 2}};

TEST(Fit, FindsTheTermsOfExactMeasurements) {
  const auto logs = fit_terms(wide, line(3, 40));
  EXPECT_NEAR(std::exp(logs[0]), 3, 0.03);
  EXPECT_NEAR(std::exp(logs[1]), 40, 0.4);
}

TEST(Fit, OneRowThatIsWrongBendsItLittle) {
  const auto logs = fit_terms(wide, line(3, 40, 3));
  EXPECT_NEAR(std::exp(logs[0]), 3, 0.2);
  EXPECT_NEAR(std::exp(logs[1]), 40, 2);
}

TEST(Fit, WithoutMeasurementsThePriorsHold) {
  const auto logs = fit_terms(std::vector<Prior>{{7, 0.1}}, {});
  EXPECT_DOUBLE_EQ(std::exp(logs[0]), 7);
}

TEST(Fit, ANarrowPriorResistsOneRow) {
  const std::vector<Residual> one{[](std::span<const double> logs) { return logs[0] - std::log(2.0); }};
  const double wide_value = std::exp(fit_terms(std::vector<Prior>{{1, 2}}, one)[0]);
  const double narrow_value = std::exp(fit_terms(std::vector<Prior>{{1, 0.02}}, one)[0]);
  EXPECT_NEAR(wide_value, 2, 0.02);
  EXPECT_LT(narrow_value, 1.3);
  EXPECT_GT(narrow_value, 1.0);
}

}  // namespace
}  // namespace gradmeter::predict
