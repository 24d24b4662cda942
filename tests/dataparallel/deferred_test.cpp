// SPDX-License-Identifier: Apache-2.0
// Training on the deferred device against the host, to the bit: whatever is read or written before the work on it is
// done gives other numbers here, or a fault. Nothing but the strategy waits: batches are uploaded before the first step
// and outcomes read after the last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/format.hpp"
#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "dataparallel/strategies/gossip.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/deferred.hpp"
#include "support/quadratic.hpp"
#include "support/training.hpp"
#include "support/training_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::DeferredDevice;
using test::DeferredPolicy;
using test::DeferredQueue;
using test::seeds;
using Case = test::RunCase;
using End = test::RunEnd;

/// Of a rank's computations, and of its collectives' copies and sums.
struct RankPolicy {
  DeferredPolicy computation, exchange;
};
/// By rank; none: all is done on the host.
using Policies = std::vector<RankPolicy>;

Policies all_ranks(const Case& c, std::uint64_t seed) {
  Policies p(static_cast<std::size_t>(c.shape().ranks()));
  if (seed == 0) return p;
  for (std::size_t r = 0; r < p.size(); ++r) {
    p[r].computation.seed = 2 * (seed * p.size() + r);
    p[r].exchange.seed = p[r].computation.seed + 1;
  }
  return p;
}

class LateQueues final : public test::RankQueues {
 public:
  LateQueues(const RankPolicy& p, std::uint64_t& events)
      : queue_(device_, p.computation), exchange_queue_(device_, p.exchange), events_(events) {
    computation = &queue_;
    exchange = &exchange_queue_;
  }
  ~LateQueues() override { events_ = queue_.events(); }
  LateQueues(const LateQueues&) = delete;
  LateQueues& operator=(const LateQueues&) = delete;

 private:
  DeferredDevice device_;
  DeferredQueue queue_, exchange_queue_;
  std::uint64_t& events_;
};

/// By rank.
struct Run {
  std::vector<End> ends;
  std::vector<std::uint64_t> events;  ///< of computations, recorded
};

Run train(const Case& c, const Policies& policies) {
  Run all{{}, std::vector<std::uint64_t>(static_cast<std::size_t>(c.shape().ranks()))};
  const test::QueuesOf late = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return std::make_shared<LateQueues>(policies[r], all.events[r]);
  };
  all.ends = test::run(c, policies.empty() ? nullptr : late);
  return all;
}

/// For every seed.
void expect_host_bits(const Case& c) {
  const Run host = train(c, {});
  for (std::uint64_t seed = 0; seed < seeds(); ++seed)
    EXPECT_EQ(train(c, all_ranks(c, seed)).ends, host.ends) << c.text() << ", seed " << seed;
}

class DeferredStrategy : public ::testing::TestWithParam<std::string> {};

TEST_P(DeferredStrategy, HasTheHostsBits) {
  for (const auto progress : {ProgressMode::on_wait, ProgressMode::thread}) {
    const Case c{.strategy = GetParam(), .ranks = 3, .progress = progress};
    if (!c.serves() || progress == ProgressMode::thread) expect_host_bits(c);
  }
}

TEST(Deferred, NetworksOfLayersHaveTheHostsBits) {
  for (const auto* const model :
       {"cnn:convolutions=2,filters=4,hidden=16", "lstm:hidden=12,layers=2", "gru-lm:hidden=10,layers=2",
        "lstm-lm:hidden=10,tied=1", "transformer-lm:ff=20,heads=3,hidden=12"})
    expect_host_bits({.strategy = "sync", .ranks = 2, .model = model});
}

/// The scale doubles in every step: whatever reads it too early or too late is off by a factor of two.
TEST(Deferred, ScaledLossesHaveTheHostsBits) {
  for (const char* strategy : {"sync", "sharded", "independent"})
    expect_host_bits({.strategy = strategy, .ranks = 3, .loss_scale = "dynamic:grow=1,start=1024"});
}

/// What one rank finds in its part of the gradient, all are told before they apply theirs.
TEST(Deferred, AnOverflowOfOneRankHasTheHostsBits) {
  for (const char* strategy : {"sync", "sharded"})
    expect_host_bits({.strategy = strategy, .ranks = 3, .loss_scale = "dynamic:start=4096", .overflowing_rank = 2});
}

std::string name_of_text(const ::testing::TestParamInfo<std::string>& info) { return test::name_of_text(info.param); }

INSTANTIATE_TEST_SUITE_P(Synchronous, DeferredStrategy,
                         ::testing::Values("sync", "sharded", "independent", "model-averaging:every=2", "bmuf:every=2",
                                           "diloco:every=2", "diloco:every=2,fragments=2,overlap=1",
                                           "slowmo:buffers=average,every=2", "adacomm:every=2,interval=2", "gossip",
                                           "gossip:graph=ring,overlap=1", "gossip:graph=random", "d-psgd",
                                           "d-psgd:graph=hypercube", "es:pairs=3", "population:size=6,survivors=2",
                                           "ps-sync"),
                         name_of_text);

/// The third message to a rank comes where the second was, which has to be added first.
TEST(Deferred, ThreeSendersToOneRankHaveTheHostsBits) {
  constexpr int ranks = 6;
  const PushTargets drawn(Graph::random, 7);  // the seed of all cases
  ASSERT_EQ(drawn.senders_to(0, ranks, 1).size(), 3);
  expect_host_bits({.strategy = "gossip:graph=random", .ranks = ranks});
}

/// Nothing is the same every time where several workers meet, so these have one.
TEST(DeferredAsynchronous, HasTheHostsBitsWithOneWorker) {
  for (const char* strategy : {"ps-async", "ps-async:push=2", "ps-async:prefetch=1", "ps-ssp", "easgd:every=1"})
    expect_host_bits({.strategy = strategy, .ranks = 1, .progress = ProgressMode::thread});
}

TEST(DeferredAsynchronous, HasTheHostsBitsWithEncodedMessages) {
  for (const char* strategy : {"ps-async", "ps-async:prefetch=1", "ps-ssp"})
    for (const char* codec : {"qsgd8:min=100", "topk:density=0.05,min=100"})
      expect_host_bits({.strategy = strategy, .ranks = 1, .codec = codec, .progress = ProgressMode::thread});
}

/// What is still to be copied to the worker lies in memory of the client, which goes.
TEST(DeferredAsynchronous, HasNoWorkLeftWhenTheClientGoes) {
  runtime::run_thread_ranks(1, [](const runtime::Communicator& world) {
    runtime::Activity activity;
    DeferredDevice device;
    DeferredQueue queue(device, {});
    RankFabric fabric(world, {.progress = ProgressMode::thread, .memory_bytes = std::size_t{1} << 20, .queue = &queue},
                      activity);
    static constexpr std::size_t n = 1000;
    Assembly assembly(fabric, {.model = [](auto&, auto&) { return std::make_unique<test::Quadratic>(n); },
                               .optimizer = "sgd",
                               .strategy = find_strategy("ps-async:prefetch=1"),
                               .strategy_options = {.codec = compression::find_codec("qsgd8:min=100")}});
    const std::vector<float> target(n, 0.5f);
    const std::vector<std::int32_t> label(1, 0);
    Strategy& strategy = assembly.strategy();
    strategy.begin(assembly.worker());
    (void)strategy.step(assembly.worker(), {target, label}, {.step_size = 0.1f, .number = 1});
    strategy.settle(assembly.worker());
    EXPECT_GT(queue.unfinished(), 0);
    strategy.end(assembly.worker());
    EXPECT_EQ(queue.unfinished(), 0);
  });
}

/// In virtual time, where they are the same every time.
std::vector<End> simulate(const Case& c, const Policies& policies) {
  kernels::set_compute_threads(1);
  std::deque<DeferredDevice> devices;
  std::deque<DeferredQueue> queues;
  std::vector<runtime::Queue*> given;
  for (const RankPolicy& p : policies) given.push_back(&queues.emplace_back(devices.emplace_back(), p.computation));
  std::vector<End> ends(static_cast<std::size_t>(c.ranks));
  SimWorld(c.ranks, {}, given).run([&](Fabric& f) {
    kernels::set_compute_threads(1);
    ends[static_cast<std::size_t>(f.rank())] = test::run(f, c);
  });
  return ends;
}

TEST(DeferredAsynchronous, HasTheHostsBitsInVirtualTime) {
  for (const char* strategy : {"ps-async", "ps-async:fetch=2,push=2", "ps-async:prefetch=1", "ps-ssp:staleness=1",
                               "easgd:every=1", "sync", "gossip", "d-psgd"}) {
    const Case c{.strategy = strategy, .ranks = 3};
    const auto host = simulate(c, {});
    for (std::uint64_t seed = 0; seed < seeds(); ++seed)
      EXPECT_EQ(simulate(c, all_ranks(c, seed)), host) << strategy << ", seed " << seed;
  }
}

TEST(DeferredOptimizer, HasTheHostsBits) {
  for (const auto& o : optimizers()) {
    for (const char* strategy : {"sync", "sharded"})
      expect_host_bits({.strategy = strategy, .optimizer = std::string(o.name)});
  }
}

constexpr const char* tied_language_model = "lstm-lm:hidden=10,layers=1,tied=1";
constexpr const char* small_transformer = "transformer-lm:ff=10,heads=2,hidden=6,layers=1";
const std::vector<Case> meshes{{.mesh = "tensor=2"},
                               {.mesh = "pipeline=2"},
                               {.mesh = "pipeline=3,schedule=gpipe"},
                               {.mesh = "tensor=2,pipeline=2"},
                               {.optimizer = "lars", .mesh = "data=2,tensor=2"},
                               {.strategy = "sharded", .optimizer = "lamb", .mesh = "data=2,tensor=2"},
                               {.mesh = "pipeline=2", .model = "cnn:convolutions=2,filters=4,hidden=16"},
                               {.mesh = "tensor=2,pipeline=2", .model = "cnn:convolutions=2,filters=4,hidden=16"},
                               {.mesh = "pipeline=2,schedule=gpipe", .model = "lstm-lm:hidden=10,layers=2"},
                               {.mesh = "data=2,pipeline=2", .model = "gru:hidden=10,layers=2"},
                               {.mesh = "tensor=2,pipeline=2", .model = small_transformer},
                               {.strategy = "sharded", .mesh = "data=2,tensor=2", .model = small_transformer},
                               {.mesh = "pipeline=2", .model = tied_language_model},
                               {.strategy = "es:pairs=2", .mesh = "pipeline=3", .model = tied_language_model},
                               {.strategy = "gossip", .mesh = "data=2,pipeline=2"},
                               {.strategy = "es:pairs=2", .mesh = "data=2,tensor=2"},
                               {.strategy = "adacomm:every=2,interval=2", .mesh = "data=2,tensor=2"},
                               {.strategy = "adacomm:every=2,interval=2", .mesh = "data=2,pipeline=2"},
                               {.strategy = "population:size=4,survivors=2", .mesh = "data=2,pipeline=2"}};

TEST(DeferredMesh, HasTheHostsBits) {
  for (Case c : meshes) {
    for (const auto progress : {ProgressMode::on_wait, ProgressMode::thread}) {
      c.progress = progress;
      expect_host_bits(c);
    }
  }
}

/// Whatever the others' queues have written there.
TEST(DeferredMesh, AReplicaHasTheValuesOfTheRankWithTheLoss) {
  for (const char* text : {"tensor=2", "pipeline=2", "tensor=2,pipeline=2"}) {
    const MeshShape shape = parse_mesh(text).complete(parse_mesh(text).replica_ranks());
    runtime::run_thread_ranks(shape.ranks(), [&](const runtime::Communicator& world) {
      runtime::Activity activity;
      DeferredDevice device;
      DeferredQueue queue(device, {});
      RankFabric fabric(world,
                        {.exchange = {.max_bytes = 64},
                         .memory_bytes = std::size_t{1} << 16,
                         .groups = 1 + Mesh::groups(shape),
                         .queue = &queue},
                        activity);
      const Mesh mesh(fabric, shape);
      const bool has_loss = mesh.place().stage + 1 == shape.pipeline && mesh.place().tensor == 0;
      const Buffer value = fabric.memory(1);
      fabric.submit("own", {}, [value, x = has_loss ? 5.0f : 3.0f] { value.values<float>()[0] = x; });
      mesh.send_to_replica(fabric, value);
      EXPECT_EQ(test::values_of(fabric, value), std::vector{5.0f}) << text << ", rank " << world.rank();
      world.barrier();  // nobody reads this rank's memory any more
    });
  }
}

bool is_for_threads(const std::string& algorithm, int ranks) {
  bool taken = false;
  const auto p = static_cast<std::uint32_t>(ranks);
  runtime::run_thread_ranks(1, [&](const runtime::Communicator&) {
    taken = allreduce::find_algorithm(algorithm)->refusal({p, p}).empty();
  });
  return taken;
}

TEST(DeferredExchange, HasTheHostsBitsOverEveryAlgorithm) {
  for (const auto& row : allreduce::algorithms()) {
    const std::string name(row.name);
    if (row.on_device) continue;                    // of a real one
    if (name != "auto" && is_for_threads(name, 4))  // "auto" need not choose the same every time
      expect_host_bits({.ranks = 4, .algorithm = name});
  }
}

/// Its hashes and projections are read on the queue too.
TEST(DeferredVerifier, HasTheHostsBitsAndFindsNoFault) {
  for (const char* strategy : {"sync", "sharded", "gossip", "es:pairs=3"})
    expect_host_bits({.strategy = strategy, .ranks = 3, .verified = true});
  expect_host_bits({.mesh = "tensor=2,pipeline=2", .verified = true});
  expect_host_bits({.optimizer = "sgd", .codec = "fp16:min=100", .verified = true});
}

/// With a density at which the sum of few ranks stays sparse.
TEST(DeferredExchange, HasTheHostsBitsWithEveryCodec) {
  for (const auto& row : compression::codecs()) {
    const bool sparse = row.parameters.find("density") != std::string_view::npos;
    const std::string codec = fmt::format("{}:min=100{}", row.name, sparse ? ",density=0.05" : "");
    expect_host_bits({.optimizer = "sgd", .ranks = 3, .codec = codec});
    if (row.name != "dgc")
      expect_host_bits({.strategy = "diloco:every=2,overlap=1", .optimizer = "sgd", .ranks = 3, .codec = codec});
  }
}

/// As when an error unwinds its owner.
TEST(DeferredExchange, HasNoWorkLeftWhenTheFabricGoes) {
  runtime::run_thread_ranks(2, [](const runtime::Communicator& world) {
    runtime::Activity activity;
    DeferredDevice device;
    DeferredQueue queue(device, {}), exchange_queue(device, {.delay = std::chrono::milliseconds(50)});
    {
      RankFabric fabric(world,
                        {.exchange = {.max_bytes = std::size_t{1} << 16,
                                      .algorithm = allreduce::find_algorithm("ring"),
                                      .codec = compression::find_codec("fp16:min=1"),
                                      .queue = &exchange_queue},
                         .progress = ProgressMode::thread,
                         .memory_bytes = std::size_t{1} << 20,
                         .queue = &queue},
                        activity);
      const Buffer values = fabric.memory(1000);
      const std::array tensors{allreduce::TensorPart{.offset = 0, .count = 1000}};
      (void)fabric.start({.kind = CallKind::all_reduce,
                          .group = everybody,
                          .in = values,
                          .out = values,
                          .tensor_layout = {.offset_in_step = 0, .tensors = tensors}});
      while (exchange_queue.unfinished() == 0) std::this_thread::yield();
    }
    EXPECT_EQ(exchange_queue.unfinished(), 0);
    world.barrier();
  });
}

/// Is a run without that event of that rank another than the host's, in one of the ways to make progress?
bool is_found(Case c, int rank, std::uint64_t event, const Run& host) {
  Policies late = all_ranks(c, 0);
  DeferredPolicy& policy = late[static_cast<std::size_t>(rank)].computation;
  policy.dropped_event = event;
  for (const int delay_us : {300, 3000, 30000}) {  // the longer ones where the machine is busy
    policy.delay = std::chrono::microseconds(delay_us);
    for (const auto progress : {ProgressMode::on_wait, ProgressMode::thread}) {
      c.progress = progress;
      try {
        if (train(c, late).ends != host.ends) return true;
      } catch (const std::exception&) {
        return true;
      }
    }
  }
  return false;
}

/// The first receive of `gossip` is into memory that nothing has used yet; `d-psgd` first sends what `begin` waited
/// for. The first stage of a tied model lends the weight in each of its last three forward passes, after which it has
/// two messages: the last two times it is the same.
bool is_exempt(const Case& c, int rank, std::uint64_t event) {
  if (c.model.ends_with("tied=1")) return rank == 0 && (event == 12 || event == 15);
  return (c.strategy.starts_with("gossip") || c.strategy.starts_with("d-psgd")) && event == 0;
}

/// Without any one of a run's events, where all work is as late as can be, the run is another.
void expect_all_events_are_needed(const Case& c) {
  if (test::sanitized) GTEST_SKIP() << "a missing event is a data race";
  const Run host = train(c, {}), late = train(c, all_ranks(c, 0));
  for (int rank = 0; rank < c.shape().ranks(); ++rank) {
    for (std::uint64_t event = 0; event < late.events[static_cast<std::size_t>(rank)]; ++event)
      EXPECT_TRUE(is_exempt(c, rank, event) || is_found(c, rank, event, host))
          << c.text() << ": event " << event << " of rank " << rank;
  }
}

class DeferredEventsOf : public ::testing::TestWithParam<std::string> {};

TEST_P(DeferredEventsOf, AreAllNeeded) {
  expect_all_events_are_needed({.strategy = GetParam(), .model = "mlp:784-16-10"});
}

INSTANTIATE_TEST_SUITE_P(Synchronous, DeferredEventsOf,
                         ::testing::Values("sync", "sharded", "model-averaging:every=2", "bmuf:every=2",
                                           "diloco:every=2", "diloco:every=2,fragments=2,overlap=1",
                                           "slowmo:buffers=average,every=2", "adacomm:every=2,interval=2", "gossip",
                                           "gossip:graph=ring,overlap=1", "gossip:graph=random", "d-psgd", "es:pairs=3",
                                           "population:size=6,survivors=2"),
                         name_of_text);

// Where stages have tensor ranks, or replicas exchange weights between steps, waiting for those implies some of them.
TEST(DeferredEvents, OfAMeshAreAllNeeded) {
  for (const Case& c :
       {Case{.mesh = "tensor=2"}, Case{.mesh = "pipeline=2"}, Case{.mesh = "pipeline=3,schedule=gpipe"},
        Case{.mesh = "pipeline=2", .model = "lstm-lm:hidden=10,layers=1"},
        Case{.mesh = "tensor=2", .model = small_transformer}, Case{.mesh = "pipeline=2", .model = tied_language_model},
        Case{.mesh = "pipeline=3", .model = "cnn:convolutions=2,filters=4,hidden=16"}})
    expect_all_events_are_needed(c);
}

}  // namespace
}  // namespace gradmeter::dataparallel
