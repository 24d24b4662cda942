// SPDX-License-Identifier: Apache-2.0
// The memory that is planned for a training against what it had resident.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <string>
#include <utility>

#include "bench/engine/session.hpp"
#include "bench/train/config.hpp"
#include "bench/train/memory.hpp"
#include "bench/train/training.hpp"
#include "model/data/dataset.hpp"
#include "runtime/host/kernel_files.hpp"
#include "runtime/process/signals.hpp"
#include "runtime/process/watchdog.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::bench {
namespace {

constexpr int planned_ranks = 2;
constexpr double bytes_of_mib = 1 << 20;
constexpr double plan_tolerance = 0.3;  ///< of what is measured, that the plan may be off in either direction
constexpr double planned_weights = (784.0 * 2048 + 2048.0 * 2048 + 2048.0 * 10) * sizeof(float) / bytes_of_mib;

TrainingConfig planned_config(const std::string& strategy, const std::string& optimizer) {
  TrainingConfig c{.model = "mlp:784-2048-2048-10",
                   .batch_per_rank = 16,
                   .strategy = dataparallel::find_strategy(strategy),
                   .algorithm = allreduce::find_algorithm("ring")};
  c.optimizer = optimizer;
  return c;
}

double planned_mib(const TrainingConfig& c) {
  return static_cast<double>(training_bytes(c, {.features = 784, .classes = 10}, planned_ranks)) / bytes_of_mib;
}

/// By how much the process's largest resident memory grew for a rank, in MiB.
double measured_mib(const TrainingConfig& c) {
  const auto data = model::make_data({.train_samples = 128, .validation_samples = 32});
  for (std::uint64_t i = 0; i < data.train->size(); ++i) data.train->prepare(i);
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  double growth = 0;
  runtime::run_thread_ranks(planned_ranks, [&](const runtime::Communicator& world) {
    Session session(world, {signals, watchdog}, core::Seconds{60}, "test");
    world.sleeping_barrier();
    if (world.rank() == 0) {
      malloc_trim(0);  // what other tests of this process have freed is resident, and would be used again unseen
      runtime::forget_peak_memory();
    }
    const double before = static_cast<double>(runtime::peak_memory_bytes());
    world.sleeping_barrier();
    Training training(session, world, data, c);
    for (std::size_t step = 0; step < 3; ++step) training.step(step);
    (void)training.validate();
    training.finish();
    if (world.rank() == 0)
      growth = (static_cast<double>(runtime::peak_memory_bytes()) - before) / planned_ranks / bytes_of_mib;
    world.sleeping_barrier();
  });
  return growth;
}

class MemoryPlan : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(MemoryPlan, IsWhatATrainingHasResident) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer's shadow is resident too";
  const auto [strategy, optimizer] = GetParam();
  const TrainingConfig c = planned_config(strategy, optimizer);
  const double plan = planned_mib(c), peak = measured_mib(c);
  EXPECT_NEAR(plan, peak, plan_tolerance * peak) << strategy << " " << optimizer << ", MiB";
}

INSTANTIATE_TEST_SUITE_P(Of, MemoryPlan,
                         ::testing::Values(std::pair{"sync", "sgd"}, std::pair{"sync", "adam"},
                                           std::pair{"sharded", "adam"}, std::pair{"sharded", "sgd"},
                                           std::pair{"bmuf", "momentum"}, std::pair{"ps-sync", "sgd"}),
                         [](const auto& p) {
                           std::string name = std::string(p.param.first) + "_" + p.param.second;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(MemoryPlan, HasTheStateOfOptimizersOnceOrInShards) {
  const double sgd = planned_mib(planned_config("sync", "sgd"));
  EXPECT_NEAR(planned_mib(planned_config("sync", "momentum")) - sgd, planned_weights, 0.1);
  EXPECT_NEAR(planned_mib(planned_config("sync", "adam")) - sgd, 2 * planned_weights, 0.1);
  TrainingConfig rounded = planned_config("sync", "adam");
  rounded.weight_format = "bf16-kahan";
  EXPECT_NEAR(planned_mib(rounded) - sgd, 4 * planned_weights, 0.1) << "a target and a carry besides";
  const double sharded = planned_mib(planned_config("sharded", "sgd"));
  EXPECT_NEAR(planned_mib(planned_config("sharded", "adam")) - sharded, 2 * planned_weights / planned_ranks, 0.1);
}

TEST(MemoryPlan, HasWhatErrorFeedbackKeeps) {
  TrainingConfig with = planned_config("sync", "sgd"), without = with;
  with.codec = compression::find_codec("qsgd8:ef=on,norm=max,rounding=nearest");
  without.codec = compression::find_codec("qsgd8:norm=max,rounding=nearest");
  EXPECT_GE(planned_mib(with) - planned_mib(without), planned_weights);
}

}  // namespace
}  // namespace gradmeter::bench
