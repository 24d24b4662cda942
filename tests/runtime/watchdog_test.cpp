// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/watchdog.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gradmeter::runtime {
namespace {

using namespace std::chrono_literals;
using core::Seconds;

TEST(StallDetector, CountsOnlyWhileNothingMoves) {
  StallDetector stall_detector({10}, {1});
  EXPECT_FALSE(stall_detector.check(5, false, {1}));
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(stall_detector.check(5, false, {1}));
  EXPECT_FALSE(stall_detector.check(6, false, {1})) << "it moved: from the start";
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(stall_detector.check(6, false, {1}));
  EXPECT_TRUE(stall_detector.check(6, false, {1}));
  EXPECT_DOUBLE_EQ(stall_detector.silent().value, 10);
}

TEST(StallDetector, ARankThatNeverMovedIsStillToo) {
  StallDetector stall_detector({3}, {1});
  EXPECT_FALSE(stall_detector.check(0, false, {1}));
  EXPECT_FALSE(stall_detector.check(0, false, {1}));
  EXPECT_TRUE(stall_detector.check(0, false, {1}));
}

TEST(StallDetector, APauseStartsTheCountAnew) {
  StallDetector stall_detector({2}, {1});
  EXPECT_FALSE(stall_detector.check(1, false, {1}));
  EXPECT_FALSE(stall_detector.check(1, false, {1}));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(stall_detector.check(1, true, {1}));
  EXPECT_FALSE(stall_detector.check(1, false, {1}));
  EXPECT_TRUE(stall_detector.check(1, false, {1}));
}

TEST(StallDetector, ASuspendedJobHasNotBeenSilent) {
  StallDetector stall_detector({10}, {1});
  EXPECT_FALSE(stall_detector.check(1, false, {1}));
  EXPECT_FALSE(stall_detector.check(1, false, {3600})) << "the whole process stood still for an hour, not its peers";
  EXPECT_DOUBLE_EQ(stall_detector.silent().value, 2);
}

TEST(PollPeriod, IsATenthAndASecondAtMost) {
  EXPECT_DOUBLE_EQ(poll_period({0.5}).value, 0.05);
  EXPECT_DOUBLE_EQ(poll_period({300}).value, 1);
}

/// Keeps what the watchdog would do to the process.
struct Recorder {
  std::mutex mutex;
  std::vector<std::string> events;
  std::atomic<int> code{-1};

  Watchdog::Ending ending(double grace_s) {
    return {.print =
                [this](std::string_view line) {
                  const std::lock_guard lock(mutex);
                  events.emplace_back(line);
                },
            .exit = [this](int c) { code = c; },
            .grace = {grace_s}};
  }
  std::size_t printed() {
    const std::lock_guard lock(mutex);
    return events.size();
  }
};

template <class Condition>
bool within(std::chrono::milliseconds limit, Condition condition) {
  for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return condition();
}

TEST(Watchdog, AHangIsSaidAndEndsTheProcessWithThree) {
  Recorder recorder;
  Activity activity;
  activity.waiting({.operation = "all-reduce ring", .peer = 3, .round = 4, .rounds = 14});
  Watchdog watchdog(recorder.ending(0.02));
  watchdog.watch(activity, 2, Seconds{0.05});
  ASSERT_TRUE(within(900ms, [&] { return recorder.code >= 0; }));
  EXPECT_EQ(recorder.code, 3);
  ASSERT_EQ(recorder.printed(), 1u);
  EXPECT_TRUE(
      recorder.events[0].starts_with("gradmeter: rank 2 waits for rank 3: all-reduce ring, round 5 of 14, for 0."))
      << recorder.events[0];
}

TEST(Watchdog, ARankThatMovesIsLeftAlone) {
  Recorder recorder;
  Activity activity;
  {
    Watchdog watchdog(recorder.ending(0));
    watchdog.watch(activity, 0, Seconds{0.2});
    const auto end = std::chrono::steady_clock::now() + 500ms;
    while (std::chrono::steady_clock::now() < end) {
      activity.beat();
      std::this_thread::sleep_for(1ms);
    }
  }
  EXPECT_EQ(recorder.printed(), 0u);
  EXPECT_EQ(recorder.code, -1);
}

TEST(Watchdog, APauseHoldsItOffAndAComputationDoesNot) {
  Recorder recorder;
  Activity activity;
  Watchdog watchdog(recorder.ending(0));
  watchdog.watch(activity, 1, Seconds{0.05});
  {
    const Pause pause(activity);
    std::this_thread::sleep_for(200ms);
    EXPECT_EQ(recorder.printed(), 0u);
  }
  const Computing computing(activity, "gemm");
  ASSERT_TRUE(within(700ms, [&] { return recorder.code == 3; }));
  EXPECT_NE(recorder.events[0].find("rank 1 has been computing gemm"), std::string::npos) << recorder.events[0];
}

TEST(Watchdog, AProgramThatEndsInTheGraceEndsItsOwnWay) {
  Recorder recorder;
  Activity activity;
  {
    Watchdog watchdog(recorder.ending(60));
    watchdog.watch(activity, 0, Seconds{0.02});
    ASSERT_TRUE(within(900ms, [&] { return recorder.printed() == 1; }));
  }
  EXPECT_EQ(recorder.code, -1);
}

TEST(Watchdog, NoTimeoutNoWatch) {
  Recorder recorder;
  Activity activity;
  {
    Watchdog watchdog(recorder.ending(0));
    watchdog.watch(activity, 0, Seconds{0});
    std::this_thread::sleep_for(30ms);
  }
  EXPECT_EQ(recorder.printed(), 0u);
}

TEST(Watchdog, EachRankOfAProcessThatStandsStillHasALineAndTheOthersHaveNone) {
  Recorder recorder;
  std::array<Activity, 3> ranks;
  ranks[0].waiting({.operation = "broadcast", .peer = 2});
  ranks[2].waiting({.operation = "broadcast", .peer = 0});
  Watchdog watchdog(recorder.ending(0.1));
  for (int r = 0; r < 3; ++r) watchdog.watch(ranks[static_cast<std::size_t>(r)], r, Seconds{0.1});
  ASSERT_TRUE(within(5s, [&] {
    ranks[1].beat();
    return recorder.code >= 0;
  }));
  EXPECT_EQ(recorder.code, 3);
  ASSERT_EQ(recorder.printed(), 2u);
  EXPECT_TRUE(recorder.events[0].starts_with("gradmeter: rank 0 waits for rank 2")) << recorder.events[0];
  EXPECT_TRUE(recorder.events[1].starts_with("gradmeter: rank 2 waits for rank 0")) << recorder.events[1];
}

TEST(Watchdog, ARankThatIsForgottenIsNotLookedAt) {
  Recorder recorder;
  Watchdog watchdog(recorder.ending(60));
  Activity stays;
  auto leaves = std::make_unique<Activity>();
  watchdog.watch(stays, 0, Seconds{0.05});
  watchdog.watch(*leaves, 1, Seconds{0.02});
  ASSERT_TRUE(within(900ms, [&] { return recorder.printed() >= 1; }));
  watchdog.forget(*leaves);
  leaves.reset();
  ASSERT_TRUE(within(900ms, [&] { return recorder.printed() == 2; })) << "the other is looked at as before";
  EXPECT_EQ(recorder.code, -1) << "the grace of the other has not passed";
}

TEST(Watchdog, TheUsualEndingIsALineOnStandardErrorAndExitThree) {
  const auto child = [] {
    Activity activity;
    auto ending = Watchdog::usual_ending();
    ending.grace = {0.01};
    Watchdog watchdog(ending);
    watchdog.watch(activity, 1, Seconds{0.05});
    std::this_thread::sleep_for(10s);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(3),
              "^gradmeter: rank 1 has been in no exchange and no computation.*\n$");
}

}  // namespace
}  // namespace gradmeter::runtime
