// SPDX-License-Identifier: Apache-2.0
// Training on real ranks against the same training in virtual time: the virtual fabric moves data by the same
// schedules in the same order, so the weights must agree to the bit.
#include <gtest/gtest.h>

#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "mpi/ranks.hpp"
#include "runtime/mpi/session.hpp"
#include "support/training.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::Trace;
using test::Training;

const model::Dataset& digits() {
  static const auto data = test::training_digits();
  return *data;
}

/// The global batch must divide by any number of ranks.
Training plan_for(int ranks) {
  Training t;
  t.batch_global = 4 * static_cast<std::size_t>(ranks);
  t.steps = 20;
  return t;
}

Trace on_ranks(const runtime::Communicator& world, const Training& t, std::string_view algorithm,
               TransportKind transport, ProgressMode progress) {
  runtime::Activity activity;
  RankFabric fabric(world,
                    {.exchange = {.max_bytes = std::size_t{1} << 20, .algorithm = allreduce::find_algorithm(algorithm)},
                     .transport = transport,
                     .progress = progress,
                     .spin_policy = test::spin_policy_of(world, progress == ProgressMode::thread ? 2 : 1),
                     .memory_bytes = std::size_t{1} << 20},
                    activity);
  return test::train(fabric, t, digits());
}

Trace in_virtual_time(int ranks, int rank, const Training& t, std::string_view algorithm) {
  SimMachine m;
  m.algorithm = allreduce::find_algorithm(algorithm);
  Trace mine;
  SimWorld(ranks, m).run([&](Fabric& f) {
    Trace trace = test::train(f, t, digits());
    if (f.rank() == rank) mine = std::move(trace);
  });
  return mine;
}

TEST(TrainingOnRanks, HoldsTheBitsOfVirtualTimeInEveryStep) {
  const auto world = runtime::MpiSession::world();
  const Training t = plan_for(world.size());
  for (const auto* algorithm : {"ring", "recursive-doubling"}) {
    const Trace expected = in_virtual_time(world.size(), world.rank(), t, algorithm);
    for (const auto transport : {TransportKind::mpi, TransportKind::shm}) {
      for (const auto progress : {ProgressMode::on_wait, ProgressMode::thread}) {
        const Trace trace = on_ranks(world, t, algorithm, transport, progress);
        for (std::size_t i = 0; i < trace.steps.size(); ++i) {
          EXPECT_EQ(trace.steps[i].weights, expected.steps[i].weights)
              << algorithm << " transport " << int(transport) << " progress " << int(progress) << " step " << i;
          EXPECT_EQ(trace.outcomes[i].loss_sum, expected.outcomes[i].loss_sum);
          EXPECT_EQ(trace.steps[i].parts.bytes_sent, expected.steps[i].parts.bytes_sent);
          EXPECT_EQ(trace.steps[i].parts.bytes_required, expected.steps[i].parts.bytes_required);
          if (trace.steps[i].weights != expected.steps[i].weights) break;
        }
        EXPECT_TRUE(test::same_on_all(world, trace.weights));
      }
    }
  }
}

TEST(TrainingOnRanks, WithTheVendorsAllReduceFollowsTheSameLosses) {
  const auto world = runtime::MpiSession::world();
  const Training t = plan_for(world.size());
  const Trace expected = in_virtual_time(world.size(), world.rank(), t, "ring");
  const Trace trace = on_ranks(world, t, "mpi", TransportKind::automatic, ProgressMode::on_wait);
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    EXPECT_NEAR(trace.outcomes[i].loss_sum, expected.outcomes[i].loss_sum, 1e-4);
    EXPECT_EQ(trace.steps[i].parts.bytes_known, world.size() == 1);
  }
}

TEST(TrainingOnRanks, IndependentRanksDriftApart) {
  const auto world = runtime::MpiSession::world();
  Training t = plan_for(world.size());
  t.strategy = "independent";
  t.own_start = false;
  const Trace trace = on_ranks(world, t, "ring", TransportKind::automatic, ProgressMode::on_wait);
  EXPECT_EQ(test::same_on_all(world, trace.weights), world.size() == 1);
}

TEST(TrainingOnRanks, AStepIsTakenApartWithoutRest) {
  const auto world = runtime::MpiSession::world();
  const Trace trace = on_ranks(world, plan_for(world.size()), "ring", TransportKind::automatic, ProgressMode::thread);
  for (const auto& s : trace.steps) {
    const auto& d = s.parts;
    EXPECT_GT(d.compute, 0);
    EXPECT_LE(d.compute + d.exposed, d.step * (1 + 1e-9));
    EXPECT_NEAR(d.overlap, d.communication - d.exposed, 1e-12);
    EXPECT_EQ(d.communication > 0, world.size() > 1);
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
