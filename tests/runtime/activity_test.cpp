// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/watchdog.hpp"

#include <gtest/gtest.h>

namespace gradmeter::runtime {
namespace {

TEST(Activity, OnlyMovementCountsAsProgress) {
  Activity activity;
  const auto start = activity.beats();
  activity.waiting({.operation = "all-reduce ring", .peer = 3, .round = 4, .rounds = 14});
  activity.waiting({.operation = "all-reduce ring", .peer = 1, .round = 3, .rounds = 14});
  EXPECT_EQ(activity.beats(), start) << "an idle loop over slices changes its note for ever";
  activity.beat();
  EXPECT_EQ(activity.beats(), start + 1);
  activity.wait_ended();
  EXPECT_EQ(activity.beats(), start + 2);
}

TEST(Activity, TheNoteIsTheLastWait) {
  Activity activity;
  EXPECT_EQ(activity.doing().operation, nullptr);
  activity.waiting({.operation = "broadcast tree", .peer = 7, .round = 0, .rounds = 3});
  const ActivitySnapshot doing = activity.doing();
  EXPECT_STREQ(doing.operation, "broadcast tree");
  EXPECT_EQ(doing.peer, 7);
  EXPECT_EQ(doing.round, 0);
  EXPECT_EQ(doing.rounds, 3);
  activity.wait_ended();
  EXPECT_EQ(activity.doing().operation, nullptr);
}

TEST(Activity, ComputingNestsAndMoves) {
  Activity activity;
  {
    const Computing step(activity, "training step");
    EXPECT_STREQ(activity.doing().computing, "training step");
    const auto before = activity.beats();
    {
      const Computing gemm(activity, "gemm");
      EXPECT_STREQ(activity.doing().computing, "gemm");
    }
    EXPECT_STREQ(activity.doing().computing, "training step");
    EXPECT_EQ(activity.beats(), before + 2);
  }
  EXPECT_EQ(activity.doing().computing, nullptr);
}

TEST(Activity, PausesNest) {
  Activity activity;
  EXPECT_FALSE(activity.paused());
  {
    const Pause outer(activity);
    { const Pause inner(activity); }
    EXPECT_TRUE(activity.paused());
  }
  EXPECT_FALSE(activity.paused());
}

TEST(Describe, NamesTheAwaitedRankOperationAndRound) {
  const ActivitySnapshot wait{.operation = "all-reduce ring", .peer = 3, .round = 4, .rounds = 14};
  EXPECT_EQ(describe(2, wait), "rank 2 waits for rank 3: all-reduce ring, round 5 of 14");
  EXPECT_EQ(describe_hang(2, wait, {30}),
            "rank 2 waits for rank 3: all-reduce ring, round 5 of 14, for 30 s; the rank that prints no such line is "
            "the culprit");
}

TEST(Describe, LeavesOutWhatThereIsNot) {
  EXPECT_EQ(describe(0, {.operation = "barrier"}), "rank 0 waits in barrier");
  EXPECT_EQ(describe(0, {.operation = "send", .peer = 1, .round = 0}), "rank 0 waits for rank 1: send, round 1");
  EXPECT_EQ(describe(1, {.computing = "gemm"}), "rank 1 computes gemm");
  EXPECT_EQ(describe(1, {}), "rank 1 is in no exchange and no computation");
}

TEST(Describe, AWaitExplainsMoreThanTheComputationBesideIt) {
  EXPECT_EQ(describe(1, {.operation = "send", .peer = 0, .computing = "gemm"}), "rank 1 waits for rank 0: send");
}

TEST(Describe, ALongComputationIsNoCulpritHunt) {
  const std::string line = describe_hang(1, {.computing = "gemm"}, {300});
  EXPECT_EQ(line, "rank 1 has been computing gemm for 300 s; if that is right, raise --timeout");
}

}  // namespace
}  // namespace gradmeter::runtime
