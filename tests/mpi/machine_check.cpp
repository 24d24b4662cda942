// SPDX-License-Identifier: Apache-2.0
// What ranks find out about the machine that they share: who waits for a core, and how long the same work takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/engine/machine_state.hpp"
#include "mpi/ranks.hpp"
#include "runtime/mpi/session.hpp"
#include "support/hog.hpp"

namespace gradmeter::bench {
namespace {

using runtime::Communicator;

/// Of all ranks, while each computes on a core of its own for a while.
MachineNoise noise_of(const Communicator& world, double seconds) {
  NoiseSampler noise;
  noise.begin();
  test::burn(seconds);
  noise.end();
  return noise.over(world);
}

TEST(MachineCheck, AHogBesideOneRankIsSeenByAll) {
  const Communicator world = runtime::MpiSession::world();
  const test::Pinned pinned(world.rank());
  const MachineNoise quick = noise_of(world, 0);
  EXPECT_TRUE(std::isnan(quick.run_delay_share) && std::isnan(quick.steal_share)) << "less than the counters can tell";
  std::unique_ptr<test::Hog> hog;
  if (world.rank() == world.size() - 1) hog = std::make_unique<test::Hog>();
  const MachineNoise with = noise_of(world, 0.2);
  hog.reset();
  world.barrier();
  double without = 1;  // one quiet moment of the machine will do
  for (int tries = 0; tries < 10 && without > 0.15; ++tries) {
    without = std::min(without, noise_of(world, 0.12).run_delay_share);
  }
  if (std::isnan(with.run_delay_share)) GTEST_SKIP() << "this kernel does not count run delays";
  EXPECT_GT(with.run_delay_share, 0.25) << "rank " << world.rank();
  EXPECT_EQ(world.max(with.run_delay_share), -world.max(-with.run_delay_share)) << "the worst rank's, on all";
  if (without > 0.15) GTEST_SKIP() << "this machine is busy: without a hog the delay is " << without;
}

class CanaryCheck : public ::testing::Test {
 protected:
  runtime::SignalWatch signals_;
  runtime::Watchdog watchdog_;
  Session session_{runtime::MpiSession::world(), {signals_, watchdog_}, core::Seconds{60}, "machine_check"};
};

TEST_F(CanaryCheck, EachRoundIsKeptAndTheSameOnAllRanks) {
  const Communicator& world = session_.world();
  Canary canary(session_, world);
  EXPECT_EQ(canary.times().rounds(), 0u) << "the first touch of its memory is not a round";
  for (std::size_t i = 0; i < 4; ++i) {
    const double time = canary.round();
    EXPECT_GT(time, 0);
    EXPECT_EQ(world.max(time), -world.max(-time));
    EXPECT_EQ(canary.times().rounds(), i + 1);
  }
}

TEST_F(CanaryCheck, FewerRanksThanTheWorldMayRunIt) {
  const Communicator& world = session_.world();
  const Communicator first = world.split(world.rank() == 0 ? 0 : -1, world.rank());
  if (!first.is_null()) {
    EXPECT_GT(Canary(session_, first).round(), 0);
  }
  world.barrier();
}

}  // namespace
}  // namespace gradmeter::bench
