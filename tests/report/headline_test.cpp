#include "report/page/headline.hpp"

#include <gtest/gtest.h>

namespace gradmeter::report {
namespace {

core::Json row(int ranks, double samples_per_s, double efficiency) {
  return {{"experiment", "scale"},
          {"status", "ok"},
          {"panel", ""},
          {"series", "ring"},
          {"model", "lenet5"},
          {"ranks", ranks},
          {"efficiency", efficiency},
          {"samples_per_s", samples_per_s},
          {"efficiency_ci95_low", 0.41},
          {"efficiency_ci95_high", 0.45},
          {"wire_s", 0.9e-3},
          {"wait_s", 0.1e-3},
          {"bound_by", "wire"}};
}

TEST(Headline, IsOfTheFastestPointAtTheMostRanksThatIsNotInDoubt) {
  RowTable table;
  table.rows = {row(2, 900, 0.9), row(4, 500, 0.43), row(4, 800, 2.5)};
  table.rows[2]["doubt"] = "above 100 %";
  const Headline found = headline(table);
  ASSERT_EQ(found.figures.size(), 3U);
  EXPECT_EQ(found.figures[0].value, "43 %");
  EXPECT_EQ(found.figures[0].interval, "41–45");
  EXPECT_EQ(found.figures[1].value, "90 %");
  EXPECT_EQ(found.figures[1].what, "of the lost time: the wire");
  EXPECT_EQ(found.figures[2].value, "500");
  EXPECT_EQ(found.of, "lenet5, 4 ranks, ring; of 2 points at 4 ranks the one with most samples/s");
}

TEST(Headline, MarksAFigureThatIsInDoubtAndNamesNoLossWhereLittleWasLost) {
  RowTable table;
  table.rows = {row(2, 900, 2.56)};
  table.rows[0]["doubt"] = "above 100 %";
  table.rows[0]["bound_by"] = "compute";
  const Headline found = headline(table);
  ASSERT_EQ(found.figures.size(), 2U);
  EXPECT_EQ(found.figures[0].value, "256 % ?");
  EXPECT_EQ(found.figures[0].what, "efficiency on 2 ranks: above 100 %");
}

TEST(Headline, IsEmptyWithoutFigures) {
  RowTable table;
  table.rows = {{{"experiment", "scale"}, {"status", "unsupported"}, {"series", "ring"}, {"panel", ""}}};
  EXPECT_TRUE(headline(table).figures.empty());
}

}  // namespace
}  // namespace gradmeter::report
