// SPDX-License-Identifier: Apache-2.0
// How the canary's times classify rounds, and the blocks that points took in turn with it.
#include "bench/engine/machine_state.hpp"

#include <gtest/gtest.h>

#include <array>

namespace gradmeter::bench {
namespace {

CanaryTimes times_of(std::initializer_list<double> seconds) {
  CanaryTimes t;
  for (const double s : seconds) t.add(s);
  return t;
}

/// Rounds that are disturbed.
std::vector<std::size_t> disturbed(const CanaryTimes& t) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < t.rounds(); ++i) {
    if (t.disturbed_at(i, t.best())) out.push_back(i);
  }
  return out;
}

using Indices = std::vector<std::size_t>;

TEST(CanaryTimes, TheBestIsOfTheWholeRunAlsoOfALaterRound) {
  CanaryTimes t = times_of({1.2e-3, 1.08e-3});
  EXPECT_DOUBLE_EQ(t.best(), 1.08e-3);
  EXPECT_EQ(disturbed(t), (Indices{0}));
  t.add(0.96e-3);
  EXPECT_DOUBLE_EQ(t.best(), 0.96e-3);
  EXPECT_EQ(disturbed(t), (Indices{0, 1}));
}

TEST(CanaryTimes, OneLuckyRoundOfManyDoesNotDisturbTheOthers) {
  CanaryTimes t = times_of({0.5});
  for (int i = 0; i < 29; ++i) t.add(1);
  EXPECT_EQ(disturbed(t), Indices{});
  EXPECT_DOUBLE_EQ(t.steadiness(), 1);
  t.add(0.5), t.add(0.5), t.add(0.5);
  EXPECT_EQ(disturbed(t).size(), 29u) << "what is reached again and again is the machine's state";
}

TEST(CanaryTimes, ARoundIsDisturbedFromATenthOn) {
  EXPECT_EQ(disturbed(times_of({1, 1.09, 1.11, 30})), (Indices{2, 3}));
}

TEST(CanaryTimes, SteadinessIsTheBestOfTheRunOverTheMedianOfSomeRounds) {
  const CanaryTimes t = times_of({1, 1, 1, 2, 4, 2});
  EXPECT_DOUBLE_EQ(t.steadiness(), 1 / 1.5);
  EXPECT_DOUBLE_EQ(t.steadiness(3), 0.5) << "a point that ran while the machine was slow, against the run's best";
  EXPECT_DOUBLE_EQ(t.steadiness(6), 1) << "no round, nothing known against it";
  EXPECT_DOUBLE_EQ(times_of({}).steadiness(), 1);
  EXPECT_DOUBLE_EQ(times_of({3, 3, 3}).steadiness(), 1);
}

TEST(UsedBlocks, DisturbedOnesCountWhereTheyAreInTheFigure) {
  const MachineState s{.disturbed = {1, 2, 7}, .turns = 10, .steadiness = 0.9};
  const auto of = [&](std::size_t turns, std::size_t taken, std::size_t used) {
    const UsedBlocks b = UsedBlocks::of(s, turns, taken, used);
    return std::array{b.used, b.disturbed, b.left_out};
  };
  EXPECT_EQ(of(10, 10, 7), (std::array<std::size_t, 3>{7, 0, 3}));
  EXPECT_EQ(of(10, 10, 10), (std::array<std::size_t, 3>{10, 3, 0})) << "too few others";
  EXPECT_EQ(of(5, 5, 5), (std::array<std::size_t, 3>{5, 2, 0})) << "it left before the others";
}

TEST(MachineState, ATurnIsAsItsRoundOfTheCanarySays) {
  const CanaryTimes t = times_of({5, 1, 1, 2, 1, 4});
  const std::vector<std::size_t> round_of{1, 1, 3, 3, 4, 5};  // the first round was an earlier group's
  const MachineState s = state_of(t, 1, round_of);
  EXPECT_EQ(s.disturbed, (std::vector<std::size_t>{2, 3, 5}));
  EXPECT_EQ(s.turns, 6u);
  EXPECT_DOUBLE_EQ(s.steadiness, 1) << "median of 1, 1, 2, 1, 4";
  EXPECT_EQ(s.disturbed_of(6), 3u);
  EXPECT_EQ(s.disturbed_of(3), 1u);
  EXPECT_EQ(state_of({}, 0, {}).turns, 0u);
}

TEST(Turns, BlocksOfDisturbedTurnsAreLeftOutWhereEnoughOthersAreThere) {
  BlockTurns turns;
  core::Blocks all;
  for (int turn = 0; turn < 9; ++turn) {
    const std::vector<double> times(turn == 1 ? 0 : 3, turn);  // turn 1 missed all windows
    all.add(times);
    turns.note(all.count());
  }
  const auto without = [&](std::vector<std::size_t> disturbed) {
    const core::Blocks kept = turns.undisturbed(all, {.disturbed = std::move(disturbed), .turns = 9});
    return std::vector<double>(kept.medians().begin(), kept.medians().end());
  };
  EXPECT_EQ(without({}), (std::vector<double>{0, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(without({2, 7}), (std::vector<double>{0, 3, 4, 5, 6, 8}));
  EXPECT_EQ(without({1, 2, 7}), (std::vector<double>{0, 3, 4, 5, 6, 8})) << "turn 1 had no block";
  EXPECT_EQ(without({0, 2, 7}).size(), 8u) << "five blocks have no interval: all stay";
}

}  // namespace
}  // namespace gradmeter::bench
