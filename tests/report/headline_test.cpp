// SPDX-License-Identifier: Apache-2.0
#include "report/page/page.hpp"

#include <gtest/gtest.h>

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;

PageRow row(std::int64_t ranks, double samples_per_s, double efficiency) {
  PageRow out;
  out.point.experiment = "scale";
  out.point.factors[Factor::model] = "lenet5";
  out.point.factors[Factor::ranks] = ranks;
  core::Metrics& m = out.point.metrics;
  m[Metric::efficiency] = efficiency;
  m[Metric::samples_per_s] = samples_per_s;
  m[Metric::efficiency_ci95_low] = 0.41;
  m[Metric::efficiency_ci95_high] = 0.45;
  m[Metric::wire_s] = 0.9e-3;
  m[Metric::wait_s] = 0.1e-3;
  m[Metric::bound_by] = "wire";
  out.put("series", "ring");
  return out;
}

TEST(Headline, IsOfTheFastestPointAtTheMostRanksThatIsNotInDoubt) {
  PageTable table;
  table.rows = {row(2, 900, 0.9), row(4, 500, 0.43), row(4, 800, 2.5)};
  table.rows[2].put("doubt", "above 100 %");
  const Headline found = headline(table);
  ASSERT_EQ(found.figures.size(), 3U);
  EXPECT_EQ(found.figures[0].value, "43 %");
  EXPECT_EQ(found.figures[0].interval, "41–45");
  EXPECT_EQ(found.figures[1].value, "90 %");
  EXPECT_EQ(found.figures[1].what, "of the lost time: the wire");
  EXPECT_EQ(found.figures[2].value, "500");
  EXPECT_EQ(found.of, "lenet5, 4 ranks, ring; of 2 points at 4 ranks the one with most samples/s");
}

TEST(Headline, IsOfTheFirstPanelThatHasAFigureToRelyOn) {
  PageTable table;
  table.rows = {row(4, 700, 0.7), row(4, 500, 0.43), row(4, 900, 0.9)};
  for (std::size_t i = 0; i < 3; ++i)
    table.rows[i].put("panel", i == 0 ? "servers" : i == 1 ? "100 Gbit/s" : "400 Gbit/s");
  table.rows[0].put("doubt", "more threads than cores");
  EXPECT_EQ(headline(table).figures[0].value, "43 %");
}

TEST(Headline, MarksAFigureThatIsInDoubtAndNamesNoLossWhereLittleWasLost) {
  PageTable table;
  table.rows = {row(2, 900, 2.56)};
  table.rows[0].put("doubt", "above 100 %");
  table.rows[0].point.metrics[Metric::bound_by] = "compute";
  const Headline found = headline(table);
  ASSERT_EQ(found.figures.size(), 2U);
  EXPECT_EQ(found.figures[0].value, "256 % ?");
  EXPECT_EQ(found.figures[0].what, "efficiency on 2 ranks: above 100 %");
}

TEST(Headline, IsEmptyWithoutFigures) {
  PageTable table;
  table.rows = {row(2, 900, 0.9)};
  table.rows[0].point.status = core::Status::unsupported;
  EXPECT_TRUE(headline(table).figures.empty());
}

}  // namespace
}  // namespace gradmeter::report
