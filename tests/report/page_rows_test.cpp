#include "report/page/rows.hpp"

#include <gtest/gtest.h>

#include <array>

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;

core::Point exchange(const char* codec, const char* interconnect, double seconds) {
  core::Point p;
  p.experiment = "allreduce";
  p.factors[Factor::codec] = std::string(codec);
  p.factors[Factor::interconnect] = std::string(interconnect);
  p.factors[Factor::size_bytes] = std::int64_t{4096};
  p.metrics[Metric::time_s] = core::Summary{.median = seconds, .ci95_low = seconds * 0.9, .ci95_high = seconds * 1.1};
  return p;
}

TEST(PageRows, GainOfACodecIsAgainstTheSamePointWithout) {
  core::Run run;
  run.points = {exchange("qsgd4", "fast", 4e-3), exchange("none", "fast", 2e-3), exchange("none", "slow", 8e-3),
                exchange("qsgd4", "slow", 1e-3), exchange("qsgd4", "alone", 1e-3)};
  run.points.push_back(exchange("bf16", "slow", 4e-3));
  run.points.back().status = core::Status::mistrusted;
  const std::array sides{analysis::Side{.name = "a", .runs = {run}}};
  const auto rows = make_rows(sides, Launches::separate).rows;
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_DOUBLE_EQ(rows[0].at("codec_gain"), 0.5);
  EXPECT_DOUBLE_EQ(rows[3].at("codec_gain"), 8);
  EXPECT_NEAR(rows[3].at("codec_gain_ci95_low").get<double>(), 8 * 0.9 / 1.1, 1e-4);
  EXPECT_NEAR(rows[3].at("codec_gain_ci95_high").get<double>(), 8 * 1.1 / 0.9, 1e-4);
  for (const std::size_t without : {1, 2, 4, 5}) EXPECT_FALSE(rows[without].contains("codec_gain")) << without;
}

}  // namespace
}  // namespace gradmeter::report
