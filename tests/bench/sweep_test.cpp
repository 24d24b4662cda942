#include "bench/engine/sweep.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace gradmeter::bench {
namespace {

core::Point row(std::int64_t ranks, core::Status status = core::Status::ok) {
  core::Point p;
  p.factors[core::Factor::ranks] = ranks;
  p.status = status;
  return p;
}

struct Told {
  std::vector<std::int64_t> measured = {}, kept = {};
  RowListener listener() {
    const auto into = [](std::vector<std::int64_t>& to) {
      return [&to](const core::Point& p) { to.push_back(std::get<std::int64_t>(p.factors[core::Factor::ranks])); };
    };
    return {.measured = into(measured), .kept = into(kept), .progress = {}};
  }
};

TEST(SweepRows, RowsOfAnEarlierRunAreShownAndCountedNowhere) {
  const core::Point wrong = row(3, core::Status::wrong);
  const FinishedRows finished{{wrong.factors.key(), wrong}};
  Told told;
  const auto listener = told.listener();
  SweepRows rows(finished, listener, true);
  rows.start(2, {});
  ASSERT_NE(rows.finished(wrong.factors), nullptr);
  EXPECT_EQ(rows.finished(row(1).factors), nullptr);
  rows.show(*rows.finished(wrong.factors));
  rows.emit(row(1));
  EXPECT_EQ(rows.wrong(), 0u);
  rows.emit(row(2, core::Status::wrong));
  EXPECT_EQ(rows.wrong(), 1u);
  EXPECT_EQ(told.measured, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(told.kept, (std::vector<std::int64_t>{3}));
}

TEST(SweepRows, OtherRanksCountAndAreSilent) {
  Told told;
  const auto listener = told.listener();
  const FinishedRows none;
  SweepRows rows(none, listener, false);
  rows.emit(row(1, core::Status::wrong));
  rows.show(row(2));
  rows.progress("now");
  EXPECT_EQ(rows.wrong(), 1u);
  EXPECT_TRUE(told.measured.empty() && told.kept.empty());
}

TEST(SweepRows, ThePointsThatAreLeftShareTheTimeThatIsLeft) {
  Told told;
  const auto listener = told.listener();
  const core::Seconds usual{5};
  const FinishedRows none;
  SweepRows rows(none, listener, true);
  rows.start(4, {});
  EXPECT_EQ(rows.share(usual).value, 5) << "no budget";
  rows.start(4, core::Seconds{1000});
  EXPECT_NEAR(rows.share(usual).value, 250, 1);
  rows.emit(row(1));
  rows.emit(row(2));
  EXPECT_NEAR(rows.share(usual).value, 500, 1);
  for (std::int64_t more = 3; more < 9; ++more) rows.emit(row(more));
  EXPECT_NEAR(rows.share(usual).value, 1000, 1) << "a point beyond the plan takes what there is";
  rows.start(1, core::Seconds{0.001});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(rows.share(usual).value, 0) << "never negative";
}

TEST(SweepRows, MemoryThatIsShortIsSaidWithBothNumbers) {
  EXPECT_EQ(short_of_memory(4 << 20, 2 << 20), "needs 4 MiB of memory on a node where 2 MiB are free");
  EXPECT_EQ(short_of_memory(4 << 20, 2 << 20, "where"), "needs 4 MiB of memory where 2 MiB are free");
}

}  // namespace
}  // namespace gradmeter::bench
