// SPDX-License-Identifier: Apache-2.0
// Every kind of strategy on real ranks against the same run in virtual time: equal bits after every step, equal bytes.
#include <gtest/gtest.h>

#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "mpi/ranks.hpp"
#include "runtime/mpi/session.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::StrategyEnd;
using test::StrategyRun;

StrategyEnd on_ranks(const runtime::Communicator& world, const StrategyRun& run, TransportKind transport,
                     ProgressMode progress) {
  const auto model = run.model();
  const std::size_t bytes = model->element_count() * sizeof(float);
  const auto strategy = find_strategy(run.strategy)->make({});
  runtime::Activity activity;
  RankFabric fabric(world,
                    {.exchange = {.max_bytes = bytes, .algorithm = allreduce::find_algorithm("ring")},
                     .transport = transport,
                     .progress = progress,
                     .spin_policy = test::spin_policy_of(world, progress == ProgressMode::thread ? 2 : 1),
                     // Weights, gradients and what is judged; the rest is what the strategy says.
                     .memory_bytes = 3 * (bytes + 4096) + strategy->fabric_bytes(*model, world.size()),
                     .uses_reduce_scatter = true},
                    activity);
  return test::run_worker(fabric, run);
}

class StrategyOnRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(StrategyOnRanks, HoldsTheBitsAndSendsTheBytesOfVirtualTime) {
  const auto world = runtime::MpiSession::world();
  const StrategyRun run{.strategy = GetParam(), .steps = 8};
  const auto expected = test::run_workers(world.size(), run)[static_cast<std::size_t>(world.rank())];
  for (const auto transport : {TransportKind::mpi, TransportKind::shm}) {
    for (const auto progress : {ProgressMode::on_wait, ProgressMode::thread}) {
      const bool at_any_time = uses_ports(find_strategy(run.strategy)->info().communication);
      if (at_any_time && progress == ProgressMode::on_wait) continue;  // messages move while nobody waits
      const auto end = on_ranks(world, run, transport, progress);
      EXPECT_EQ(end.hashes, expected.hashes) << int(transport) << " " << int(progress);
      EXPECT_EQ(end.evaluation_weights, expected.evaluation_weights) << int(transport) << " " << int(progress);
      EXPECT_EQ(end.totals.bytes_sent, expected.totals.bytes_sent) << int(transport) << " " << int(progress);
      EXPECT_EQ(end.totals.calls, expected.totals.calls);
    }
  }
}

class ServersOnRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(ServersOnRanks, SendTheForecastAndMeetTheMeanStalenessInWhateverOrderTheRanksCome) {
  const auto world = runtime::MpiSession::world();
  const StrategyRun run{.strategy = GetParam(), .steps = 24};
  const auto model = run.model();
  const Forecast forecast = find_strategy(run.strategy)
                                ->make({})
                                ->predict({.ranks = static_cast<std::uint32_t>(world.size()),
                                           .tensors = model->tensors(),
                                           .elements = model->element_count(),
                                           .steps = static_cast<std::uint64_t>(run.steps)});
  for (const auto transport : {TransportKind::mpi, TransportKind::shm}) {
    const auto end = on_ranks(world, run, transport, ProgressMode::thread);
    EXPECT_EQ(world.sum(static_cast<double>(end.totals.bytes_sent)), static_cast<double>(forecast.bytes));
    EXPECT_GT(end.observed.updates, 0u);
    if (!find_strategy(run.strategy)->name.starts_with("ps-async")) continue;
    std::uint64_t sum = end.observed.staleness_under_way, updates = 0;
    for (std::size_t k = 0; k < end.observed.staleness.size(); ++k) {
      sum += k * end.observed.staleness[k];
      updates += end.observed.staleness[k];
    }
    EXPECT_EQ(sum, updates * static_cast<std::uint64_t>(world.size() - 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, ServersOnRanks,
                         ::testing::Values("ps-async", "ps-ssp:staleness=1", "easgd:every=2", "ad-psgd"),
                         test::name_of_run<const char*>);

INSTANTIATE_TEST_SUITE_P(Strategies, StrategyOnRanks,
                         ::testing::Values("sharded", "model-averaging:every=3", "bmuf:every=3", "diloco:every=3",
                                           "diloco:every=3,fragments=2,overlap=1", "slowmo:buffers=average,every=3",
                                           "adacomm:every=3,interval=3", "gossip", "gossip:overlap=1", "d-psgd",
                                           "d-psgd:graph=hypercube", "es", "population:size=8,survivors=3", "ps-sync",
                                           "ps-ssp:staleness=0,fetch=2"),
                         test::name_of_run<const char*>);

}  // namespace
}  // namespace gradmeter::dataparallel
