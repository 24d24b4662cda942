// SPDX-License-Identifier: Apache-2.0
// Ranks whose clocks drift by amounts of their own, over a second: what all believe to be rank 0's time, against the
// truth, which the ranks of one host share.
#include "runtime/clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "mpi/ranks.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::runtime {
namespace {

constexpr double ppm = 1e-6, us = 1e-6;

double injected(int rank) { return rank == 0 ? 0 : rank % 2 ? 200 : -20.0 * rank; }

double true_time() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of what a rank takes for rank 0's time now. This rank may lose its core between two readings: the closest of some.
double error_now(const DriftModel& m) {
  double best = 1;
  for (int i = 0; i < 20; ++i) {
    const double before = true_time(), reference = m.reference(host_clock()), after = true_time();
    const double least = std::max({0.0, before - reference, reference - after});
    best = std::min(best, least);
  }
  return best;
}

// In this order: a drift that is injected stays.
TEST(ClockCheck, RanksThatShareAClockHaveOneModelOfIt) {
  const Communicator world = runtime::MpiSession::world();
  SharedClock clock(world, world.rank() / 2);
  const double at = world.broadcast_value(host_clock());
  const double mine = clock.model().offset(at), uncertainty = clock.model().uncertainty(at);
  EXPECT_LE(std::fabs(mine), uncertainty) << "all ranks of a host read one clock";
  EXPECT_EQ(uncertainty == 0, world.rank() < 2);
  const Communicator pair = world.split(world.rank() / 2, world.rank());
  EXPECT_EQ(pair.max(mine), -pair.max(-mine));
  EXPECT_EQ(clock.pair_uncertainty() == 0, world.size() <= 2);
}

TEST(ClockCheck, DriftIsFollowedBySynchronisingAgainAndNotWithout) {
  const Communicator world = runtime::MpiSession::world();
  const double rate = injected(world.rank());
  if (rate != 0) inject_clock_drift(rate);
  SharedClock followed(world), once(world);
  const double begin = true_time();
  while (world.broadcast_value(true_time() - begin) < 1.5) {
    followed.resynchronise();
    const double bound = followed.model().uncertainty(host_clock());
    EXPECT_LE(error_now(followed.model()), bound + 1 * us);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  const double drifted = std::fabs(rate) * ppm * (true_time() - begin), unsure_once = once.model().uncertainty(begin);
  const double left = error_now(followed.model()), left_once = error_now(once.model());
  const double bound = followed.model().uncertainty(host_clock());
  EXPECT_GE(left_once, drifted / 2 - unsure_once) << "the control: what drifts is not followed by itself";
  if (rate == 0) {
    EXPECT_EQ(left, 0);
  }
  const double pair = followed.pair_uncertainty();
  EXPECT_EQ(pair == 0, world.size() == 1);
  EXPECT_GE(pair, 0.99 * world.max(bound));
  // How well clocks can be compared here and now: where other programs have the cores, every trip is slow.
  const double unsure = std::max(unsure_once, SharedClock(world).model().uncertainty(host_clock()));
  if (std::fabs(rate) < 200) return;
  if (unsure > drifted / 10) GTEST_SKIP() << "this machine is busy: trips of " << 2e6 * unsure << " us";
  EXPECT_LT(left, drifted / 2);
}

}  // namespace
}  // namespace gradmeter::runtime
