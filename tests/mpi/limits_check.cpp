// SPDX-License-Identifier: Apache-2.0
// What limits are made of, on real ranks: rates where there is somebody to speak with, and bounds that all ranks share.
#include "bench/train/limits.hpp"
#include "runtime/mpi/session.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/engine/machine_state.hpp"
#include "runtime/process/signals.hpp"
#include "support/mlp.hpp"

namespace gradmeter::bench {
namespace {

class LimitsCheck : public ::testing::Test {
 protected:
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  Session session{runtime::MpiSession::world(), {signals, watchdog}, core::Seconds{60}, "limits_check"};
  const runtime::Communicator& world = session.world();
};

core::Machine machine_of(const LinkProbe& probe) {
  core::Machine m;
  probe.fill(m);
  return m;
}

TEST_F(LimitsCheck, ANodeHasMemoryAndNoPort) {
  LinkProbe probe(session, world, 1);
  for (int i = 0; i < 3; ++i) probe.round();
  const core::Machine m = machine_of(probe);
  EXPECT_EQ(m.ranks_per_node, world.size() > 1 ? 0u : 1u);
  EXPECT_EQ(m.within_node != core::Link{}, world.size() > 1);
  EXPECT_EQ(m.node_port.bytes_per_s, 0);
}

TEST_F(LimitsCheck, RanksOnNodesOfTheirOwnHaveAPortAndNoMemory) {
  std::vector<int> nodes;
  for (int r = 0; r < world.size(); ++r) nodes.push_back(r);
  LinkProbe probe(session, world, 1, nodes);
  for (int i = 0; i < 3; ++i) probe.round();
  const core::Machine m = machine_of(probe);
  EXPECT_EQ(m.ranks_per_node, 1u);
  EXPECT_EQ(m.within_node, core::Link{}) << "nothing was measured";
  EXPECT_EQ(m.node_port.bytes_per_s > 0, world.size() > 1);
}

TEST_F(LimitsCheck, NodesOfDifferentSizesHaveBoth) {
  if (world.size() < 3) GTEST_SKIP() << "needs 3 ranks";
  std::vector<int> nodes(static_cast<std::size_t>(world.size()), 0);
  nodes.back() = 1;
  LinkProbe probe(session, world, 1, nodes);
  for (int i = 0; i < 3; ++i) probe.round();
  const core::Machine m = machine_of(probe);
  EXPECT_EQ(m.ranks_per_node, static_cast<std::uint32_t>(world.size() - 1));
  EXPECT_NE(m.within_node, core::Link{});
  EXPECT_GT(m.node_port.bytes_per_s, 0);
}

TEST_F(LimitsCheck, AWireIsAsFastAsItsBestRoundOnAllRanks) {
  std::vector<int> nodes;
  for (int r = 0; r < world.size(); ++r) nodes.push_back(r % 2);
  if (world.size() < 2) GTEST_SKIP() << "one node";
  PortProbe port(session, world, nodes);
  EXPECT_EQ(port.rate().value, 0);
  for (double before = 0; const int i : {0, 1, 2}) {
    port.round();
    EXPECT_GT(port.rate().value, 0) << i;
    EXPECT_GE(port.rate().value, before);
    before = port.rate().value;
  }
  for (const double rate : world.all_gather_value(port.rate().value)) EXPECT_EQ(rate, port.rate().value);
}

TEST_F(LimitsCheck, WorkBesideThePointsKeepsToItsShareOnAllRanksAlike) {
  PeriodicWork seldom(world, 0), often(world, 1e9);
  int few = 0, many = 0;
  for (int turn = 0; turn < 5; ++turn) {
    seldom.run_if_due([&] { ++few, world.barrier(); });
    often.run_if_due([&] { ++many, world.barrier(); });
  }
  EXPECT_EQ(few, 1) << "once at least";
  EXPECT_EQ(many, 5);
}

TEST_F(LimitsCheck, AllRanksHaveTheSameBound) {
  const model::Mlp model({64, 48, 10});
  StepLimits limits(session, world, 1);
  StepDemand d{.operations = model.pass_problems(4), .least_sent = {.by_busiest_rank = 1e6, .by_busiest_node = 0}};
  if (world.rank() > 0 && world.rank() + 1 == world.size()) d.operations.clear();  // it only serves
  limits.round(d);
  limits.round(d);
  for (const bool lock_step : {true, false}) {
    d.lock_step = lock_step;
    const StepBound b = limits.bound(d);
    EXPECT_GT(b.compute.value, 0);
    EXPECT_LE(b.roofline, b.compute);
    EXPECT_EQ(b.exchange.value > 0, world.size() > 1);
    const auto all = world.all_gather_value(b.seconds().value);
    for (const double s : all) EXPECT_EQ(s, all[0]);
  }
}

TEST_F(LimitsCheck, RanksThatKeepStepTakeTheSlowestsTimeAndOthersTheHarmonicMean) {
  const model::Mlp model({64, 48, 10});
  StepLimits limits(session, world, 1);
  StepDemand d{.operations = model.pass_problems(4), .least_sent = {}};
  for (auto& p : d.operations) p.times *= static_cast<std::size_t>(world.rank() + 1);
  limits.round(d);
  double slowest = 0, rates = 0;
  for (int r = 0; r < world.size(); ++r) {
    StepDemand alone = d;  // of one rank: its own time is what all take
    if (r != world.rank()) alone.operations.clear();
    const double time = limits.bound(alone).compute.value;
    slowest = std::max(slowest, time);
    rates += 1 / time;
  }
  EXPECT_DOUBLE_EQ(limits.bound(d).compute.value, slowest);
  d.lock_step = false;
  const double mean = limits.bound(d).compute.value;
  EXPECT_NEAR(mean, world.size() / rates, 1e-9 * mean);
  if (world.size() > 1) {
    EXPECT_LT(mean, slowest) << "the control: ranks have unequal work";
  }
}

}  // namespace
}  // namespace gradmeter::bench
