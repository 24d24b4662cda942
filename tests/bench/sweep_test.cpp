// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/sweep.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <set>
#include <thread>

#include "core/error.hpp"
#include "runtime/clock.hpp"

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
  std::vector<std::size_t> groups = {};
  RowListener listener() {
    const auto into = [](std::vector<std::int64_t>& to) {
      return [&to](const core::Point& p) { to.push_back(p.factors[core::Factor::ranks].get<std::int64_t>()); };
    };
    return {.group_measured =
                [this](std::size_t points, std::size_t rest) {
                  groups.insert(groups.end(), {points, rest});
                },
            .measured = into(measured),
            .kept = into(kept),
            .progress = {}};
  }
};

const RoundPeers peers{.agree = [](std::size_t value) { return value; }, .stop_if_interrupted = [] {}};

TEST(SweepRows, RowsOfAnEarlierRunAreShownAndCountedNowhere) {
  const core::Point wrong = row(3, core::Status::wrong);
  const FinishedRows finished{{wrong.factors.key(), wrong}};
  Told told;
  const auto listener = told.listener();
  SweepRows rows(finished, listener, peers, {});
  rows.start(2);
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
  const RoundPeers second{.agree = [](std::size_t v) { return v; }, .stop_if_interrupted = [] {}, .is_first = false};
  SweepRows rows(none, listener, second, {});
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
  EXPECT_EQ(SweepRows(none, listener, peers, {}).time_for_point(usual).value, 5) << "no budget";
  SweepRows rows(none, listener, peers, TimeBudget{core::Seconds{1000}});
  rows.start(4);
  EXPECT_NEAR(rows.time_for_point(usual).value, 250, 1);
  rows.emit(row(1));
  rows.emit(row(2));
  EXPECT_NEAR(rows.time_for_point(usual).value, 500, 1);
  for (std::int64_t more = 3; more < 9; ++more) rows.emit(row(more));
  EXPECT_NEAR(rows.time_for_point(usual).value, 1000, 1) << "a point beyond the plan takes what there is";
}

TEST(SweepRows, TheTimeRunsFromTheBeginOfTheLaunch) {
  const RowListener silent;
  const FinishedRows none;
  const double now = runtime::host_clock();
  SweepRows rows(none, silent, peers, TimeBudget{core::Seconds{1000}, now - 400});
  rows.start(2);
  EXPECT_NEAR(rows.time_for_point(core::Seconds{5}).value, 300, 1);
  SweepRows late(none, silent, peers, TimeBudget{core::Seconds{1000}, now - 2000});
  late.start(2);
  EXPECT_EQ(late.time_for_point(core::Seconds{5}).value, 0) << "never negative";
}

TEST(SweepRows, ABudgetThatCannotBeKeptIsSaidAndRefusedWhereItMustBeKept) {
  std::vector<std::string> said;
  const FinishedRows none;
  RowListener listener;
  listener.warning = [&](const std::string& line) { said.push_back(line); };
  const TimeBudget began_earlier{core::Seconds{10}, runtime::host_clock() - 4};
  SweepRows rows(none, listener, peers, began_earlier);
  rows.foresee({5.9}, "there is room");
  EXPECT_TRUE(said.empty());
  rows.foresee({7}, "two points");
  rows.foresee({9}, "two points");
  const std::string first = "a time budget of 10.0 s cannot be kept: it needs at least 11.0 s (two points)";
  EXPECT_EQ(said, std::vector<std::string>{first});
  auto strict = began_earlier;
  strict.must_be_kept = true;
  EXPECT_THROW(SweepRows(none, listener, peers, strict).foresee({7}, "two points"), core::UsageError);
  EXPECT_EQ(said.size(), 1u);
  SweepRows(none, listener, peers, {}).foresee({1e9}, "no budget");
  EXPECT_EQ(said.size(), 1u);
  rows.foresee({20}, "all points");
  ASSERT_EQ(said.size(), 2u) << "half as long again as was said";
  EXPECT_EQ(said[1], "a time budget of 10.0 s cannot be kept: it needs at least 24.0 s (all points)");
}

TEST(SweepRows, ABudgetThatIsUsedUpTooEarlyIsSaidWithTheTimeThatTheRunWillTake) {
  std::vector<std::string> said;
  const FinishedRows none;
  RowListener listener;
  listener.warning = [&](const std::string& line) { said.push_back(line); };
  const auto after_one_of_four = [&](double budget) {
    said.clear();
    SweepRows rows(none, listener, peers, TimeBudget{core::Seconds{budget}});
    rows.start(4);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    rows.group_measured(1, 3);
    return said;
  };
  ASSERT_EQ(after_one_of_four(0.001).size(), 1u);
  EXPECT_TRUE(
      said[0].starts_with("the time budget of 1.00 ms is used up, and 3 of 4 points are still to be measured; if "
                          "they take as long as those before, the run takes "))
      << said[0];
  EXPECT_TRUE(after_one_of_four(1000).empty()) << "later points get less time";
  SweepRows last(none, listener, peers, TimeBudget{core::Seconds{0}});
  last.start(1);
  last.group_measured(1, 0);
  EXPECT_TRUE(said.empty()) << "nothing is left to be measured";
}

TEST(SweepRows, AllPeersTakeTheFirstOnesShare) {
  const RowListener silent;
  const FinishedRows none;
  const RoundPeers second{.agree = [](std::size_t) { return std::bit_cast<std::size_t>(7.5); },
                          .stop_if_interrupted = [] {},
                          .is_first = false};
  SweepRows rows(none, silent, second, TimeBudget{core::Seconds{1000}});
  rows.start(4);
  EXPECT_EQ(rows.time_for_point(core::Seconds{1}).value, 7.5);
}

TEST(SweepRows, MemoryThatIsShortIsSaidWithBothNumbers) {
  EXPECT_EQ(short_of_memory(4 << 20, 2 << 20), "needs 4 MiB of memory on a node where 2 MiB are free");
  EXPECT_EQ(short_of_memory(4 << 20, 2 << 20, "where"), "needs 4 MiB of memory where 2 MiB are free");
}

TEST(TakeTurns, AllGoOnUntilTheLastHasEnough) {
  std::string order;
  const auto wants = [&order](char name, int blocks) {
    return Turn([&order, name, blocks]() mutable { return order += name, --blocks <= 0; });
  };
  const std::vector<Turn> turns{wants('a', 1), wants('b', 3), wants('c', 2)};
  take_turns(1, turns);
  EXPECT_EQ(order.size(), 9u);
  for (const char name : {'a', 'b', 'c'}) EXPECT_EQ(std::ranges::count(order, name), 3) << name;
}

/// The order of ten turns in so many rotations.
std::vector<std::string> orders(std::uint64_t seed, std::size_t rotations) {
  std::vector<std::string> all(1);
  std::vector<Turn> turns;
  for (char name = 'a'; name < 'k'; ++name) turns.emplace_back([&all, name] { return all.back() += name, true; });
  take_turns(seed, turns, [&](bool) { return all.size() == rotations || (all.emplace_back(), false); });
  return all;
}

TEST(TakeTurns, EachRotationHasAnOrderOfItsOwnThatIsTheSameOnAllRanks) {
  const auto seen = orders(3, 20);
  EXPECT_EQ(seen, orders(3, 20));
  EXPECT_NE(seen, orders(4, 20));
  std::set<std::string> before_a;
  for (std::string order : seen) {
    if (const auto at = order.find('a'); at > 0 && at < order.size()) before_a.insert(order.substr(at - 1, 1));
    std::ranges::sort(order);
    EXPECT_EQ(order, "abcdefghij");
  }
  EXPECT_GE(before_a.size(), 5u) << "the same turns come before a";
}

TEST(TakeTurns, WhatIsBesideThePointsMayWantMoreOrEndThem) {
  int rotations = 0;
  const std::vector<Turn> ready{[&] { return ++rotations, true; }}, never{[&] { return ++rotations, false; }};
  take_turns(1, ready, [&](bool enough) { return enough && rotations == 4; });
  EXPECT_EQ(rotations, 4);
  take_turns(1, never, [&](bool) { return rotations == 6; });
  EXPECT_EQ(rotations, 6);
}

/// Points of a plan by number. `wrong`: what the check finds; `cut`: an interruption.
class FakeExperiment final : public Experiment {
 public:
  explicit FakeExperiment(std::vector<std::vector<std::int64_t>> groups) : groups_(std::move(groups)) {}
  std::int64_t refused = 0, wrong = 0, cut = 0;
  std::vector<std::int64_t> measured = {};
  std::vector<double> shares = {};
  mutable int completed = 0;

  std::vector<SweepPoint*> plan(const SweepRows& rows) override {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (const auto n : groups_[g]) {
        auto& p = points_.emplace_back(rows.point("fake", row(n).factors, g));
        if (n == refused) refuse(p.row, core::Status::unsupported, "cannot be had");
      }
    }
    return pointers_to(points_);
  }
  void measure(std::size_t group, SweepRows& rows) override {
    shares.push_back(rows.time_for_point(core::Seconds{3}).value);
    for (auto& p : points_) {
      if (p.group != group || !p.is_due()) continue;
      const auto n = p.row.factors[core::Factor::ranks].get<std::int64_t>();
      measured.push_back(n);
      if (n == wrong) refuse(p.row, core::Status::wrong, "a wrong sum");
      p.cut = n == cut;
    }
  }
  void complete(SweepPoint&) const override { ++completed; }

 private:
  std::vector<std::vector<std::int64_t>> groups_;
  std::vector<SweepPoint> points_;
};

using Numbers = std::vector<std::int64_t>;

TEST(RunSweep, RowsOfAnEarlierRunAreShownInTheirPlacesAndNotMeasuredAgain) {
  Told told;
  FakeExperiment fake({{1, 2}, {3}, {4}});
  FinishedRows finished;
  for (const std::int64_t n : {2, 3}) finished[row(n).factors.key()] = row(n, core::Status::wrong);
  EXPECT_EQ(run_sweep(fake, peers, finished, told.listener(), {}), 0u);
  EXPECT_EQ(fake.measured, (Numbers{1, 4}));
  EXPECT_EQ(told.kept, (Numbers{2, 3}));
  EXPECT_EQ(told.measured, (Numbers{1, 4}));
  EXPECT_EQ(told.groups, (std::vector<std::size_t>{1, 1, 1, 0})) << "kept rows are neither measured nor left";
  EXPECT_EQ(fake.completed, 4) << "kept rows too";
  EXPECT_EQ(fake.shares.size(), 2u) << "a group that is all kept is not prepared";
}

TEST(RunSweep, RefusedPointsAreRowsAndAreNotMeasured) {
  Told told;
  FakeExperiment fake({{1, 2}});
  fake.refused = 1;
  auto listener = told.listener();
  std::vector<core::Point> rows;
  listener.measured = [&](const core::Point& p) { rows.push_back(p); };
  EXPECT_EQ(run_sweep(fake, peers, {}, listener, {}), 0u);
  EXPECT_EQ(fake.measured, (Numbers{2}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].status, core::Status::unsupported);
  EXPECT_EQ(rows[0].reason, "cannot be had");
  EXPECT_EQ(rows[1].status, core::Status::ok);
}

TEST(RunSweep, AWrongCheckIsARowAndCounts) {
  Told told;
  FakeExperiment fake({{1}, {2}});
  fake.wrong = 1;
  EXPECT_EQ(run_sweep(fake, peers, {}, told.listener(), {}), 1u);
  EXPECT_EQ(told.measured, (Numbers{1, 2}));
}

TEST(RunSweep, GroupsShareTheTimeThatIsLeftByTheirPoints) {
  Told told;
  FakeExperiment fake({{1, 2}, {3, 4}});
  const FinishedRows finished{{row(3).factors.key(), row(3)}};
  (void)run_sweep(fake, peers, finished, told.listener(), TimeBudget{core::Seconds{900}});
  ASSERT_EQ(fake.shares.size(), 2u);
  EXPECT_NEAR(fake.shares[0], 300, 1) << "three points are new";
  EXPECT_NEAR(fake.shares[1], 900, 1) << "one is left";
}

TEST(RunSweep, AnInterruptionEndsItOnceTheRowsOfTheGroupAreOut) {
  for (const std::int64_t cut : {1, 3}) {  // in the first group, and in the last
    Told told;
    FakeExperiment fake({{1, 2}, {3, 4}});
    fake.cut = cut;
    RoundPeers watched = peers;
    watched.stop_if_interrupted = [&] {
      if (std::ranges::count(fake.measured, cut)) throw core::Interrupted(2);
    };
    EXPECT_THROW((void)run_sweep(fake, watched, {}, told.listener(), {}), core::Interrupted);
    EXPECT_EQ(told.measured, cut == 1 ? Numbers{2} : (Numbers{1, 2, 4}));
  }
}

}  // namespace
}  // namespace gradmeter::bench
