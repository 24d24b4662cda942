#include "bench/scale_row.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace gradmeter::bench {
namespace {

using core::Metric;
using core::Point;

Point timed(double seconds, double samples_per_s, double compute) {
  Point p;
  p.metrics[Metric::time_s] = seconds;
  p.metrics[Metric::samples_per_s] = samples_per_s;
  p.metrics[Metric::compute_s] = compute;
  p.factors[core::Factor::batch_per_rank] = std::int64_t{64};
  return p;
}

ScalePoint point(int ranks, std::optional<Scaling> scaling) {
  ScalePoint p;
  p.ranks = ranks;
  p.scaling = scaling;
  p.strategy = dataparallel::find_strategy("sync");
  return p;
}

TEST(CompareRow, WeakEfficiencyIsTheRateOfARankAgainstOneRanks) {
  const Point one = timed(0.010, 6400, 0.010), control = timed(0.011, 23272, 0.011);
  Point row = timed(0.0125, 4 * 64 / 0.0125, 0.011);
  compare_row(point(4, Scaling::weak), &one, &control, row);
  EXPECT_NEAR(row.metrics.number(Metric::efficiency), 0.8, 1e-12);
  EXPECT_NEAR(row.metrics.number(Metric::exposed_s), 0.0015, 1e-12);
  EXPECT_NEAR(row.metrics.number(Metric::interference_s), 0.0, 1e-12);
  EXPECT_EQ(row.metrics.number(Metric::baseline_time_s), 0.010);
  EXPECT_EQ(core::to_text(row.metrics[Metric::baseline_batch]), "64");
  EXPECT_EQ(core::to_text(row.metrics[Metric::bound_by]), "wire");
}

TEST(CompareRow, StrongEfficiencyComparesWithAFairShareOfTheBaseline) {
  const Point one = timed(0.040, 6400, 0.040), control = timed(0.011, 23000, 0.011);
  Point row = timed(0.020, 256 / 0.020, 0.011);
  compare_row(point(4, Scaling::strong), &one, &control, row);
  EXPECT_NEAR(row.metrics.number(Metric::efficiency), 0.5, 1e-12);
}

TEST(CompareRow, WithoutABaselineThereIsNoEfficiency) {
  Point row = timed(0.02, 100, 0.02);
  compare_row(point(2, Scaling::weak), nullptr, nullptr, row);
  EXPECT_TRUE(core::is_null(row.metrics[Metric::efficiency]));
  EXPECT_TRUE(core::is_null(row.metrics[Metric::exposed_s]));
}

TEST(LowerBound, IsTheLongerOfComputeAndExchange) {
  const Limits limits{{1e11}, {1e9}};
  const auto compute = lower_bound(limits, 1e10, 1000);
  EXPECT_NEAR(compute.seconds(), 0.1, 1e-12);
  EXPECT_STREQ(compute.name(), "compute");
  const auto wire = lower_bound(limits, 1e6, 1.2e9);
  EXPECT_NEAR(wire.seconds(), 2.0 * 3 / 4 * 0.8, 1e-12);
  EXPECT_STREQ(wire.name(), "link");
  EXPECT_EQ(lower_bound(limits, 0, 0).seconds(), 0);
}

}  // namespace
}  // namespace gradmeter::bench
