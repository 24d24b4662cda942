// SPDX-License-Identifier: Apache-2.0
// Averages of two ranks where each rank's weights lie on a deferred device: nothing of an update may get lost between
// its worker and its background task.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <vector>

#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/deferred.hpp"
#include "support/quadratic.hpp"
#include "support/served.hpp"
#include "support/training.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::DeferredDevice;
using test::DeferredPolicy;
using test::DeferredQueue;
using test::seeds;

/// Of a rank that averages with others.
struct Averaged {
  std::vector<float> read, evaluation_weights;  ///< read: the weights of each step's gradient, one after the other
};

constexpr std::size_t averaged_elements = 5000, averaged_steps = 12;
constexpr float averaged_size = 0.1f;

/// Nothing but the strategy waits before the last step has been submitted.
void average(Fabric& fabric, bool overlap, Averaged& out) {
  constexpr std::size_t n = averaged_elements;
  Assembly assembly(fabric, {.model = [](auto&, auto&) { return std::make_unique<test::Quadratic>(averaged_elements); },
                             .seed = 0,
                             .optimizer = "sgd",
                             .strategy = find_strategy("ad-psgd"),
                             .strategy_options = {.overlap = overlap}});
  const Buffer read = fabric.memory(averaged_steps * n), evaluated = fabric.memory(n);
  std::deque<std::vector<float>> targets;
  const std::vector<std::int32_t> label(1, 0);
  Strategy& strategy = assembly.strategy();
  strategy.begin(assembly.worker());
  for (std::size_t step = 0; step < averaged_steps; ++step) {
    auto& target = targets.emplace_back(n);
    for (std::size_t i = 0; i < n; ++i) target[i] = test::target_of(fabric.rank(), static_cast<int>(step), i);
    fabric.copy("read", assembly.worker().parameters(), read.part(step * n, n));
    strategy.step(assembly.worker(), {target, label}, {.step_size = averaged_size, .number = step + 1});
  }
  strategy.settle(assembly.worker());
  strategy.evaluation_weights(assembly.worker(), evaluated);
  strategy.end(assembly.worker());
  out = {test::values_of(fabric, read), test::values_of(fabric, evaluated)};
}

/// How far the evaluation weights are from the first ones less all ranks' updates, which averages do not change.
double off_the_mean(const std::vector<Averaged>& all) {
  double most = 0;
  for (std::size_t i = 0; i < averaged_elements; ++i) {
    double mean = double(all[0].read[i]);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      for (std::size_t step = 0; step < averaged_steps; ++step) {
        const double target = double(test::target_of(static_cast<int>(rank), static_cast<int>(step), i));
        const double read = double(all[rank].read[step * averaged_elements + i]);
        mean -= double(averaged_size) * (read - target) / double(all.size());
      }
    }
    most = std::max(most, std::fabs(double(all[0].evaluation_weights[i]) - mean));
  }
  return most;
}

/// By rank, on thread ranks, whose messages come whenever they do. No seed: on the host.
std::vector<Averaged> average_on_threads(int ranks, bool overlap, std::optional<std::uint64_t> seed) {
  std::vector<Averaged> all(static_cast<std::size_t>(ranks));
  runtime::run_thread_ranks(ranks, [&](const runtime::Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    runtime::Activity activity;
    DeferredDevice device;
    std::optional<DeferredQueue> queue;
    if (seed) queue.emplace(device, DeferredPolicy{.seed = *seed == 0 ? 0 : *seed * all.size() + rank});
    RankFabric fabric(world,
                      {.exchange = {.max_bytes = averaged_elements * sizeof(float)},
                       .progress = ProgressMode::thread,
                       .spin_policy = {20, 0},
                       .memory_bytes = std::size_t{4} << 20,
                       .queue = queue ? &*queue : nullptr},
                      activity);
    average(fabric, overlap, all[rank]);
    world.barrier();  // nobody reads this rank's memory any more
  });
  return all;
}

/// A passive rank's weights are updated by its worker and averaged by its background task: if either read or wrote them
/// too early, or both at once, part of an update would be lost.
TEST(DeferredAverages, LoseNoUpdate) {
  for (const int ranks : {2, 3, 5}) {
    for (const bool overlap : {true, false}) {
      EXPECT_LT(off_the_mean(average_on_threads(ranks, overlap, std::nullopt)), 1e-5) << ranks << " on the host";
      for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
        const auto all = average_on_threads(ranks, overlap, seed);
        EXPECT_LT(off_the_mean(all), 1e-5) << ranks << ", seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
