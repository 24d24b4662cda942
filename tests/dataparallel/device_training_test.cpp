// SPDX-License-Identifier: Apache-2.0
// Training with a GPU's memory and streams against the host, to the bit: the host's own operations compute, on copies
// of the memory that they ask for, so only what is copied too early or too late makes a difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "allreduce/registry.hpp"
#include "dataparallel/fabric/decorators/probe.hpp"
#include "kernels/op.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/device_seeds.hpp"
#include "support/gpu_queues.hpp"
#include "support/gpu_ranks.hpp"
#include "support/host_backends.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::RunCase;

[[maybe_unused]] const bool has_operations = test::host_computes_for("cuda");

void expect_host_bits(const RunCase& c) {
  if (const std::string why = test::host_refusal(c); !why.empty()) GTEST_SKIP() << why;
  const auto host = test::run(c, nullptr);
  test::each_device_seed([&] { EXPECT_EQ(test::run_on_gpu(c), host) << c.text(); });
}

/// Whose sums are kernels.
void expect_host_bits_of_exchanges(const RunCase& c) {
  if (const std::string why = test::host_refusal(c); !why.empty()) GTEST_SKIP() << why;
  const auto host = test::run(c, nullptr);
  test::each_device_seed([&] { EXPECT_EQ(test::run_on_gpu(c, true), host) << c.text(); });
}

class DeviceStrategy : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceStrategy, HasTheHostsBits) {
  for (const auto progress : {ProgressMode::on_wait, ProgressMode::thread}) {
    const RunCase c{.strategy = GetParam(), .ranks = 3, .progress = progress};
    if (!c.serves() || progress == ProgressMode::thread) expect_host_bits(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Synchronous, DeviceStrategy,
                         ::testing::Values("sync", "sharded", "independent", "model-averaging:every=2", "bmuf:every=2",
                                           "diloco:every=2", "diloco:every=2,fragments=2,overlap=1",
                                           "slowmo:buffers=average,every=2", "adacomm:every=2,interval=2", "gossip",
                                           "gossip:graph=ring,overlap=1", "gossip:graph=random", "d-psgd",
                                           "d-psgd:graph=hypercube", "es:pairs=3", "population:size=6,survivors=2",
                                           "ps-sync"),
                         [](const auto& strategy) { return test::name_of_text(strategy.param); });

TEST(DeviceExchange, HasTheHostsBitsInEveryStrategy) {
  for (const char* strategy : {"sync", "sharded", "bmuf:every=2", "diloco:every=2,fragments=2,overlap=1", "gossip",
                               "es:pairs=3", "population:size=6,survivors=2", "ps-sync"}) {
    for (const auto progress : {ProgressMode::on_wait, ProgressMode::thread}) {
      const RunCase c{.strategy = strategy, .ranks = 3, .progress = progress};
      if (!c.serves() || progress == ProgressMode::thread) expect_host_bits_of_exchanges(c);
    }
  }
}

/// Nothing is the same every time where several workers meet, so these have one.
TEST(DeviceAsynchronous, HasTheHostsBitsWithOneWorker) {
  for (const char* strategy : {"ps-async", "ps-async:push=2", "ps-async:prefetch=1", "ps-ssp", "easgd:every=1"})
    expect_host_bits({.strategy = strategy, .ranks = 1, .progress = ProgressMode::thread});
}

TEST(DeviceAsynchronous, HasTheHostsBitsWithEncodedMessages) {
  for (const char* strategy : {"ps-async", "ps-async:prefetch=1", "ps-ssp"})
    expect_host_bits({.strategy = strategy, .ranks = 1, .codec = "qsgd8:min=100", .progress = ProgressMode::thread});
}

TEST(DeviceTraining, OfNetworksOfLayersHasTheHostsBits) {
  for (const char* model :
       {"cnn:convolutions=2,filters=4,hidden=16", "lstm:hidden=12,layers=2", "gru-lm:hidden=10,layers=2",
        "lstm-lm:hidden=10,tied=1", "transformer-lm:ff=20,heads=3,hidden=12"})
    expect_host_bits({.strategy = "sync", .ranks = 2, .model = model});
}

TEST(DeviceTraining, OfScaledLossesHasTheHostsBits) {
  for (const char* strategy : {"sync", "sharded", "independent"})
    expect_host_bits({.strategy = strategy, .ranks = 3, .loss_scale = "dynamic:grow=1,start=1024"});
}

TEST(DeviceTraining, WithAnOverflowOfOneRankHasTheHostsBits) {
  for (const char* strategy : {"sync", "sharded"})
    expect_host_bits({.strategy = strategy, .ranks = 3, .loss_scale = "dynamic:start=4096", .overflowing_rank = 2});
}

/// Norms of layers that several ranks hold parts of are summed on the way.
TEST(DeviceTraining, ByOptimizersThatShareNormsHasTheHostsBits) {
  for (const char* optimizer : {"lars", "lamb"}) {
    expect_host_bits({.strategy = "sharded", .optimizer = optimizer, .ranks = 3});
    expect_host_bits({.optimizer = optimizer, .mesh = "tensor=2"});
  }
}

TEST(DeviceTraining, WithEveryCodecHasTheHostsBits) {
  for (const auto& row : compression::codecs()) {
    const bool sparse = row.parameters.find("density") != std::string_view::npos;
    const std::string codec = std::string(row.name) + ":min=100" + (sparse ? ",density=0.05" : "");
    expect_host_bits({.optimizer = "sgd", .ranks = 3, .codec = codec});
  }
}

/// Work of a device has its times only when it is done.
TEST(DeviceTraining, AStepsRecordHasItsLastComputations) {
  test::each_device_seed([] {
    runtime::run_thread_ranks(1, [](const runtime::Communicator& world) {
      runtime::Activity activity;
      test::GpuQueues queues;
      RankFabric fabric(world, {.exchange = {.max_bytes = 1024}, .memory_bytes = 4096, .queue = queues.computation},
                        activity);
      Probe probe(fabric);
      const Buffer memory = probe.memory(64);
      for (int step = 0; step < 2; ++step) {
        probe.begin_step();
        probe.submit("first", {}, [=] { memory.values<float>()[0] = 1; });
        probe.submit("last", {}, [=] { memory.values<float>()[0] = 2; });
        const StepRecord& record = probe.end_step();
        ASSERT_EQ(record.computations.size(), 2U) << "step " << step;
        EXPECT_EQ(record.computations.back().label, "last");
        EXPECT_LE(record.computations.back().when.end, record.step.end);
      }
    });
  });
}

/// Calls of two groups whose work waits for peers in the stream, and that become ready in different orders on the two
/// ranks. If they started in these orders, each rank's stream would wait for the other's for ever.
TEST(DeviceExchange, StartsCallsThatWaitInTheStreamInOneOrderOnAllRanks) {
  for (const char* algorithm : {"nccl", "nccl-messages", "gpu-direct", "gpu-ring"}) {
    for (const auto progress : {ProgressMode::on_wait, ProgressMode::thread}) {
      const auto chosen = allreduce::find_algorithm(algorithm);
      if (!chosen->refusal({2, 2}).empty()) continue;  // built without NCCL
      test::run_gpu_ranks(2, [&](const test::GpuRank& r) {
        const auto exchanges = r.device.make_queue();
        runtime::Activity activity;
        RankFabric fabric(r.world,
                          {.exchange = {.max_bytes = 4096, .algorithm = chosen, .queue = exchanges.get()},
                           .progress = progress,
                           .memory_bytes = 1 << 16,
                           .queue = &r.queue},
                          activity);
        const Group other = fabric.split(0, r.world.rank());
        const Buffer first = fabric.memory(64), second = fabric.memory(64);
        fabric.submit("fill", {}, [=] {
          std::ranges::fill(first.values<float>(), 1.0f);
          std::ranges::fill(second.values<float>(), 2.0f);
        });
        const runtime::EventPtr early = fabric.record();
        if (r.world.rank() == 0) {
          fabric.submit("delay", {}, [] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); });
        }
        const runtime::EventPtr late = fabric.record();
        const Ticket a = fabric.all_reduce(everybody, first, allreduce::Op::sum, late);
        const Ticket b = fabric.all_reduce(other, second, allreduce::Op::sum, early);
        fabric.wait(a);
        fabric.wait(b);
        fabric.submit("check", {}, [=] {
          EXPECT_EQ(first.values<float>()[63], 2.0f);
          EXPECT_EQ(second.values<float>()[63], 4.0f);
        });
        fabric.synchronise();
      });
    }
  }
}

TEST(DeviceTraining, OfMeshesHasTheHostsBits) {
  for (const char* mesh : {"tensor=2", "pipeline=2", "pipeline=3,schedule=gpipe", "tensor=2,pipeline=2"})
    expect_host_bits({.mesh = mesh, .verified = true});
}

}  // namespace
}  // namespace gradmeter::dataparallel
