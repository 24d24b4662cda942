// SPDX-License-Identifier: Apache-2.0
// Verified steps of strategies whose messages arrive after the step in which they were sent: nothing is found where all
// is right, on any graph, and a flipped bit is found.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "bench/engine/session.hpp"
#include "bench/train/training.hpp"
#include "core/format.hpp"
#include "model/data/dataset.hpp"
#include "runtime/process/signals.hpp"
#include "runtime/process/watchdog.hpp"
#include "runtime/threads/thread_group.hpp"

namespace gradmeter::bench {
namespace {

TrainingConfig gossip_config(const std::string& strategy, const std::string& injection = {}) {
  TrainingConfig c{.model = "mlp:784-4-10", .batch_per_rank = 2, .strategy = dataparallel::find_strategy(strategy)};
  if (!injection.empty()) c.injection = core::parse_injection(injection);
  return c;
}

/// Rank 0's verdicts of windows of steps: in each one step is verified, in the next window another.
std::string verdict_of_windows(int ranks, const TrainingConfig& c) {
  const auto data = model::make_data({.train_samples = 256, .validation_samples = 8});
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  std::string found;
  runtime::run_thread_ranks(ranks, [&](const runtime::Communicator& world) {
    Session session(world, {signals, watchdog}, core::Seconds{60}, "test");
    Training t(session, world, data, c);
    std::string fault = t.check_exchange().fault;
    constexpr std::size_t windows = 12, steps = 4;
    for (std::size_t i = 0; i < windows * steps && fault.empty(); ++i) {
      if (i % steps == i / steps % steps) t.verify_next();
      if (i % 10 == 0) t.verify_next();  // sometimes two in a row
      t.step(i % t.steps_per_epoch());
      if (i % steps != steps - 1) continue;
      t.quiesce();
      fault = t.take_fault();
    }
    t.finish();
    if (world.rank() == 0) found = fault;
  });
  return found;
}

/// The sum of two ranks with a codec that rounds at random, made by a training's fabric.
std::vector<float> coded_sum(std::uint64_t seed) {
  TrainingConfig c{.model = "mlp:784-4-10",
                   .strategy = dataparallel::find_strategy("sync"),
                   .algorithm = allreduce::find_algorithm("direct"),
                   .codec = compression::find_codec("qsgd2")};
  c.seed = seed;
  constexpr int ranks = 2;
  constexpr std::size_t n = 2048;
  std::vector<float> out;
  runtime::run_thread_ranks(ranks, [&](const runtime::Communicator& world) {
    runtime::Activity activity;
    auto options = fabric_options(c, layout_of(c, ranks, world.rank()), {.features = 784, .classes = 10});
    dataparallel::RankFabric fabric(world, options, activity);
    const auto memory = fabric.memory(n);
    const auto x = memory.values<float>();
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 17) / 17;
    const allreduce::TensorPart tensor{.offset = 0, .count = n};
    fabric.wait(fabric.all_reduce(dataparallel::everybody, memory, allreduce::Op::sum, {},
                                  {.offset_in_step = 0, .tensors = {&tensor, 1}}));
    if (world.rank() == 0) out.assign(x.begin(), x.end());
    world.barrier();
  });
  return out;
}

TEST(CodedTraining, DrawsByTheRunsSeed) {
  const auto first = coded_sum(1);
  EXPECT_EQ(coded_sum(1), first);
  EXPECT_NE(coded_sum(2), first);
}

using GossipCase = std::tuple<const char*, int, int>;
class VerifiedGossip : public ::testing::TestWithParam<GossipCase> {
 protected:
  static std::string strategy() {
    return fmt::format("gossip:graph={},overlap={}", std::get<0>(GetParam()), std::get<1>(GetParam()));
  }
  static int ranks() { return std::get<2>(GetParam()); }
};

TEST_P(VerifiedGossip, IsRightWhereNothingIsInjected) {
  EXPECT_EQ(verdict_of_windows(ranks(), gossip_config(strategy())), "");
}

TEST_P(VerifiedGossip, IsWrongWhereABitIsFlipped) {
  // One that travels after the first steps; verified are only some, so all from there on are flipped until one is seen.
  std::string found;
  for (int call = 20; call < 32 && found.empty(); ++call)
    found = verdict_of_windows(ranks(), gossip_config(strategy(), fmt::format("flip:rank=1,call={}", call)));
  EXPECT_NE(found, "");
}

INSTANTIATE_TEST_SUITE_P(GraphsAndRanks, VerifiedGossip,
                         ::testing::Combine(::testing::Values("exponential", "random", "ring"), ::testing::Values(0, 1),
                                            ::testing::Values(3, 4, 5)),
                         [](const auto& p) {
                           return fmt::format("{}_overlap{}_p{}", std::get<0>(p.param), std::get<1>(p.param),
                                              std::get<2>(p.param));
                         });

}  // namespace
}  // namespace gradmeter::bench
