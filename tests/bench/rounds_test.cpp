// SPDX-License-Identifier: Apache-2.0
// Rounds alone: blocks, how they are spread, what ends them.
#include "bench/engine/rounds.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace gradmeter::bench {
namespace {

RoundPeers alone() {
  return {.agree = [](std::size_t value) { return value; }, .stop_if_interrupted = [] {}};
}

double now_s = 0;

/// Time passes only where a test lets it.
RoundPeers alone_and_undelayed() {
  auto peers = alone();
  peers.clock = [] { return now_s; };
  return peers;
}

/// Iterations that are said to take `seconds`, and how many were run.
struct Fake {
  double seconds = 1e-3;
  std::size_t discarded = 0, kept = 0;
  RunBlock run() {
    return [this](std::size_t n, bool keep) {
      (keep ? kept : discarded) += n;
      return std::vector<double>(n, seconds);
    };
  }
};

TEST(Rounds, OneQuietBlockIsNotEnough) {
  Fake fake;
  Rounds rounds(alone(), {.rule = {.min_time = core::Seconds{0}}}, fake.run());
  for (int i = 0; i < 7; ++i) EXPECT_EQ(rounds.round(), core::Stop::none) << "block " << i;
  EXPECT_EQ(rounds.round(), core::Stop::interval);
  EXPECT_EQ(rounds.blocks().count(), 8u);
}

TEST(Rounds, BlocksAreSpreadOverTime) {
  Fake fake;
  constexpr double least = 0.05;
  Rounds rounds(alone(), {.rule = {.min_time = core::Seconds{least}}}, fake.run());
  const auto begin = std::chrono::steady_clock::now();
  while (rounds.round() == core::Stop::none) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), least);
  EXPECT_GE(rounds.blocks().count(), 8u);
}

TEST(Rounds, AContestantThatHasEnoughStaysInTurn) {
  Fake fake;
  Rounds rounds(alone(), {.rule = {.min_time = core::Seconds{0}}}, fake.run());
  while (rounds.round() == core::Stop::none) {
  }
  const auto had = rounds.blocks().count();
  EXPECT_EQ(rounds.round(), core::Stop::interval);
  EXPECT_EQ(rounds.blocks().count(), had + 1);
}

TEST(Rounds, ASmallBudgetMakesBlocksShort) {
  const auto second_block = [](double budget) {
    Fake fake;  // of 1 ms
    Rounds rounds(alone_and_undelayed(), {.rule = {.budget = core::Seconds{budget}}, .block = core::Seconds{0.1}},
                  fake.run());
    rounds.round();  // how long a call takes is not known yet
    const std::size_t first = fake.kept;
    rounds.round();
    return fake.kept - first;
  };
  EXPECT_EQ(second_block(5), 100u);
  EXPECT_EQ(second_block(0.48), 31u) << "half of it in eight blocks";
  EXPECT_EQ(second_block(0), 3u) << "no less than 2 ms";
}

TEST(Rounds, BlocksHaveAnOddNumberOfIterations) {
  const auto second_block = [](double seconds, std::size_t exact_samples) {
    Fake fake{.seconds = seconds};
    Rounds rounds(alone_and_undelayed(), {.exact_samples = exact_samples, .block = core::Seconds{0.1}}, fake.run());
    rounds.round();  // how long a call takes is not known yet
    const std::size_t first = fake.kept;
    rounds.round();
    return fake.kept - first;
  };
  EXPECT_EQ(second_block(0.2, 0), 1u);
  EXPECT_EQ(second_block(0.06, 0), 3u) << "two would be as one";
  EXPECT_EQ(second_block(0.03, 0), 5u) << "not four";
  EXPECT_EQ(second_block(0.03, 4), 3u) << "what is left of four";
}

TEST(Rounds, WhatIsBetweenShortCallsIsPartOfABlock) {
  Fake fake{.seconds = 1e-6};
  const auto waiting = [run = fake.run()](std::size_t n, bool keep) {
    now_s += static_cast<double>(n) / 4096;
    return run(n, keep);
  };
  Rounds rounds(alone_and_undelayed(), {.settling = core::Seconds{2e-3}, .block = core::Seconds{4e-3}}, waiting);
  rounds.round();  // how long a call takes is not known yet
  const auto had = fake;
  rounds.round();
  EXPECT_EQ(fake.discarded - had.discarded, 9u) << "2 ms, of a quarter each";
  EXPECT_EQ(fake.kept - had.kept, 17u) << "4 ms";
}

TEST(Rounds, ShortCallsAreDiscardedForAWhile) {
  Fake fake{.seconds = 1e-5};
  Rounds rounds(alone_and_undelayed(), {.discarded = 3, .settling = core::Seconds{2e-3}}, fake.run());
  rounds.round();  // how long a call takes is not known yet
  EXPECT_EQ(fake.discarded, 3u);
  rounds.round();
  EXPECT_EQ(fake.discarded, 203u);
}

}  // namespace
}  // namespace gradmeter::bench
