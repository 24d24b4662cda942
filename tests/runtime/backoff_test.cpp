// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/backoff.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

namespace gradmeter::runtime {
namespace {

/// Number of times that this thread has gone to sleep of its own will; giving the core away with sched_yield counts as
/// none. A sleep may be missing: where another thread takes the core just before it, the kernel counts a preemption.
long sleeps() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;
}

long sleeps_in(SpinPolicy p, int waits, int reset_every = 0) {
  Backoff backoff(p);
  const long before = sleeps();
  for (int i = 1; i <= waits; ++i) {
    backoff.wait();
    if (reset_every && i % reset_every == 0) backoff.reset();
  }
  return sleeps() - before;
}

TEST(SpinPolicy, SpinsForLongOnlyWhereEveryThreadHasACore) {
  EXPECT_EQ(spin_policy_for(2, 2).yields, 0);
  EXPECT_EQ(spin_policy_for(1, 8).yields, 0);
  EXPECT_GT(spin_policy_for(3, 2).yields, 0);
  EXPECT_GT(spin_policy_for(2, 2).spins, spin_policy_for(3, 2).spins);
  EXPECT_GT(spin_policy_for(3, 2).spins, 0);
}

TEST(Backoff, LearnsToGiveTheCoreAwaySoonerAndForgetsItAgain) {
  Backoff backoff({.spins = 200, .yields = 0});
  for (int i = 0; i < 201; ++i) backoff.wait();  // 200 polls, then the first yield
  EXPECT_EQ(backoff.spins(), 100);
  for (int i = 0; i < 1000; ++i) backoff.wait();
  EXPECT_EQ(backoff.spins(), 10);
  backoff.reset();  // this wait needed yields: nothing is forgotten
  EXPECT_EQ(backoff.spins(), 10);
  for (int waits = 0; waits < 10; ++waits) {
    backoff.wait();
    backoff.reset();
  }
  EXPECT_EQ(backoff.spins(), 200);
}

TEST(Backoff, NeverSleepsWhenToldNotTo) { EXPECT_LT(sleeps_in({.spins = 3, .yields = 0}, 20'000), 20); }

TEST(Backoff, SleepsAfterItsSpinsAndYields) {
  // Three spins go before each of ten yields, and before each of the twenty naps. At least half of these are counted.
  EXPECT_LT(sleeps_in({.spins = 3, .yields = 10}, 40), 5);
  EXPECT_GE(sleeps_in({.spins = 3, .yields = 10}, 40 + 4 * 20), 10);
}

TEST(Backoff, ANapTakesAtLeastTwentyMicroseconds) {
  Backoff backoff({.spins = 0, .yields = 1});
  backoff.wait();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) backoff.wait();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::microseconds(50 * 20));
}

TEST(Backoff, AResetStartsItsPatienceAnew) {
  EXPECT_LT(sleeps_in({.spins = 3, .yields = 10}, 400, 30), 5);
  EXPECT_GE(sleeps_in({.spins = 3, .yields = 10}, 400), 45);
}

}  // namespace
}  // namespace gradmeter::runtime
