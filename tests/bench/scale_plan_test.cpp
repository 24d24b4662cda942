// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/train/flags.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

ScaleFactors usual_factors() {
  return {.models = {"mlp:784-1024-1024-10"},
          .batches = {16, 64, 256},
          .ranks = {1, 2, 4},
          .strategies = {dataparallel::find_strategy("independent"), dataparallel::find_strategy("sync")},
          .algorithms = {allreduce::find_algorithm("mpi"), allreduce::find_algorithm("ring")},
          .overlaps = {Overlap::bucketed},
          .transports = {dataparallel::TransportKind::automatic},
          .scalings = {Scaling::weak},
          .threads = {1},
          .cadences = {runtime::Cadence::barrier},
          .interconnect = ""};
}

auto count_if(const std::vector<ScalePoint>& points, auto predicate) {
  return std::count_if(points.begin(), points.end(), predicate);
}

TEST(ScalePlan, MeaningfulCombinationsStandOnce) {
  const auto points = plan_scale(usual_factors());
  EXPECT_EQ(points.size(), 24u);
  EXPECT_EQ(count_if(points, [](const auto& p) { return !p.strategy->communicates(); }), 9);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.strategy->communicates() && p.ranks == 1; }), 3);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.algorithm != nullptr; }), 12);
}

TEST(ScalePlan, ControlsAreAddedWhereTheyWereNotAskedFor) {
  auto f = usual_factors();
  f.ranks = {4};
  f.strategies = {dataparallel::find_strategy("sync")};
  const auto points = plan_scale(f);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.ranks == 1; }), 6);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.ranks == 4 && !p.strategy->communicates(); }), 3);
}

TEST(ScalePlan, BaselineAndControlComeBeforeWhatIsComparedWithThem) {
  auto f = usual_factors();
  f.scalings = {Scaling::weak, Scaling::strong};
  const auto points = plan_scale(f);
  const auto same = [](const ScalePoint& a, const ScalePoint& b) {
    return a.model == b.model && a.ranks == b.ranks && a.batch_per_rank == b.batch_per_rank &&
           a.strategy->name == b.strategy->name && a.algorithm == b.algorithm && a.scaling == b.scaling;
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (const auto& wanted : {baseline_of(points[i]), control_of(points[i])}) {
      const auto end = points.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      EXPECT_TRUE(std::any_of(points.begin(), end, [&](const auto& p) { return same(p, wanted); })) << i;
    }
  }
}

TEST(ScalePlan, WeakKeepsTheBatchOfARankAndStrongThatOfAll) {
  auto f = usual_factors();
  f.scalings = {Scaling::weak, Scaling::strong};
  for (const auto& p : plan_scale(f)) {
    if (!p.impossible.empty()) continue;
    EXPECT_EQ(p.batch_global, p.batch_per_rank * static_cast<std::size_t>(p.ranks));
    if (p.scaling == Scaling::strong) {
      EXPECT_TRUE(p.batch_global == 16 || p.batch_global == 64 || p.batch_global == 256);
    }
  }
}

TEST(ScalePlan, AFurtherFactorIsCrossedWithAllOthersAndStandsInItsRow) {
  auto f = usual_factors();
  const std::size_t before = plan_scale(f).size();
  const auto micro_batches = [](std::size_t n) { return [n](TrainingConfig& c) { c.accumulate = n; }; };
  f.settings = {{"--accumulate", {micro_batches(1), micro_batches(4)}}};
  const auto points = plan_scale(f);
  EXPECT_EQ(points.size(), 2 * before);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.accumulate == 4; }), static_cast<std::ptrdiff_t>(before));
  for (const auto& p : points) {
    EXPECT_EQ(control_of(p).accumulate, p.accumulate);
    core::Factors row;
    fill_training(p, p.applies, row);
    EXPECT_EQ(core::is_null(row[core::Factor::accumulate]), p.accumulate == 1);
    EXPECT_EQ(core::is_null(row[core::Factor::bucket_bytes]), !p.applies.bucket);
  }
}

TEST(ScalePlan, APointWithoutAnExchangeHasNothingOfOne) {
  auto f = usual_factors();
  f.codecs = {compression::find_codec("qsgd4")};
  f.settings = {{"--bucket", {[](TrainingConfig& c) { c.bucket_bytes = 4096; }}, &ExchangeFactors::bucket}};
  f.common.overlap = Overlap::bucketed;
  const auto points = plan_scale(f);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.bucket_bytes == 4096; }),
            count_if(points, [](const auto& p) { return p.applies.bucket; }));
  EXPECT_GT(count_if(points, [](const auto& p) { return p.applies.bucket; }), 0);
  for (const auto& p : points) {
    for (const auto& q : {p.strategy->communicates() && p.ranks > 1 ? control_of(p) : p, alone_of(p)}) {
      EXPECT_EQ(q.overlap, Overlap::none);
      EXPECT_EQ(q.algorithm, nullptr);
      EXPECT_EQ(q.codec, nullptr);
      EXPECT_EQ(q.bucket_bytes, TrainingConfig().bucket_bytes);
      EXPECT_FALSE(q.applies.overlap || q.applies.codec || q.applies.algorithm || q.applies.transport);
      EXPECT_EQ(q.step_size, q.strategy->info().step_size);
    }
  }
}

TEST(ScalePlan, ABatchThatDoesNotDivideIsARowWithItsReason) {
  auto f = usual_factors();
  f.ranks = {3};
  f.scalings = {Scaling::strong};
  const auto points = plan_scale(f);
  EXPECT_EQ(count_if(points, [](const auto& p) { return !p.impossible.empty(); }), 9);
}

TEST(ScalePlan, TheVendorsExchangeHasNoTransportOfOurs) {
  auto f = usual_factors();
  f.transports = {dataparallel::TransportKind::mpi, dataparallel::TransportKind::shm};
  std::set<std::string_view> vendors;
  const auto points = plan_scale(f);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.algorithm && p.algorithm->is_vendor(); }), 6);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.algorithm && !p.algorithm->is_vendor(); }), 12);
}

ScaleFactors on_four(std::vector<std::string> strategies) {
  auto f = usual_factors();
  f.ranks = {4};
  f.batches = {64};
  f.scalings = {Scaling::weak};
  f.strategies.clear();
  for (const auto& s : strategies) f.strategies.push_back(dataparallel::find_strategy(s));
  return f;
}

TEST(ScalePlan, AStrategyHasOnlyTheFactorsThatItSpeaksBy) {
  auto f = on_four({"gossip", "ps-async", "model-averaging", "diloco", "diloco:overlap=4", "sync"});
  f.algorithms = {allreduce::find_algorithm("ring"), allreduce::find_algorithm("mpi")};
  f.overlaps = {Overlap::none, Overlap::bucketed};
  f.codecs = {compression::find_codec("qsgd4")};
  std::map<std::string, int> rows;
  for (const auto& p : plan_scale(f)) {
    if (p.ranks == 1) continue;
    const auto base = std::string(p.strategy->info().name);
    ++rows[base];
    const bool is_sum = base == "sync" || base == "diloco";
    const bool overlaps = p.strategy->name.find("overlap=4") != std::string::npos;
    EXPECT_EQ(p.algorithm != nullptr, is_sum || base == "model-averaging") << base;
    EXPECT_EQ(p.applies.overlap, base == "sync" || base == "ps-async" || overlaps) << p.strategy->name;
    EXPECT_EQ(p.applies.codec, is_sum || base == "ps-async") << base;
    EXPECT_EQ(p.codec != nullptr, p.applies.codec) << base;
    EXPECT_EQ(p.applies.algorithm, p.algorithm != nullptr) << base;
    EXPECT_EQ(p.applies.bucket, base == "sync") << base;
    const bool vendor = p.algorithm && p.algorithm->is_vendor();
    EXPECT_EQ(p.applies.transport, base != "independent" && !vendor) << base;
    EXPECT_EQ(p.cadence == runtime::Cadence::none, base == "ps-async") << "a barrier would make workers keep step";
  }
  EXPECT_EQ(
      rows,
      (std::map<std::string, int>{
          {"diloco", 2 + 4}, {"gossip", 1}, {"independent", 1}, {"model-averaging", 2}, {"ps-async", 2}, {"sync", 4}}));
}

TEST(ScalePlan, ATransportIsForAlgorithmsOfOursForMessagesAndForPartsOfAModel) {
  const auto has = [](std::string_view strategy, std::string_view algorithm, std::string_view mesh) {
    const TrainingConfig c{.mesh = dataparallel::parse_mesh(mesh),
                           .strategy = dataparallel::find_strategy(strategy),
                           .algorithm = allreduce::find_algorithm(algorithm)};
    return exchange_factors(c, layout_of(c, 2, 0)).transport;
  };
  EXPECT_TRUE(has("sync", "ring", "data"));
  EXPECT_FALSE(has("sync", "mpi", "data"));
  EXPECT_TRUE(has("gossip", "mpi", "data")) << "makes no all-reduce";
  EXPECT_TRUE(has("ps-sync", "mpi", "data"));
  EXPECT_FALSE(has("independent", "ring", "data"));
  EXPECT_TRUE(has("independent", "mpi", "tensor=2"));
}

TEST(ScalePlan, RanksThatServeHaveNoBatch) {
  for (const auto& p : plan_scale(on_four({"ps-async:servers=1"}))) {
    if (p.ranks == 1) {
      EXPECT_EQ(p.strategy->name.find("servers=1"), std::string::npos) << "one rank must train";
    }
    if (p.ranks == 4 && p.strategy->communicates()) {
      EXPECT_EQ(p.batch_global, 3 * 64u);
    }
    EXPECT_TRUE(p.impossible.empty());
  }
}

TEST(ScalePlan, TheControlOfServersTrainsWithTheBatchOfAWorker) {
  auto f = on_four({"ps-async:servers=1", "sync"});
  f.batches = {96};
  f.scalings = {Scaling::strong};
  std::size_t with_servers = 0;
  for (const auto& p : plan_scale(f)) {
    EXPECT_EQ(control_of(p).batch_per_rank, p.batch_per_rank) << "their compute times are compared";
    if (p.ranks == 1) continue;
    const bool serves = p.strategy->name.starts_with("ps-async");
    with_servers += serves;
    EXPECT_EQ(p.batch_per_rank, serves ? 32u : 24u);
    EXPECT_EQ(control_of(p).batch_global, serves ? 128u : 96u);
    EXPECT_EQ(baseline_of(p).batch_global, 96u);
    EXPECT_EQ(full_node_of(p, {}, 2).batch_per_rank, 48u) << "a node shares the global batch";
  }
  EXPECT_EQ(with_servers, 1u);
}

TEST(ScalePlan, TheOptimizerIsAFactorUnlessItIsTheUsualOne) {
  const auto factor = [](const std::string& optimizer, const std::string& weight_format = "fp32") {
    TrainingConfig c{
        .strategy = dataparallel::find_strategy("sync"), .optimizer = optimizer, .weight_format = weight_format};
    core::Factors row;
    fill_training(c, {}, row);
    return core::is_null(row[core::Factor::optimizer]) ? "" : core::to_text(row[core::Factor::optimizer]);
  };
  EXPECT_EQ(factor("sgd"), "") << "so that rows of older files have the same key";
  EXPECT_EQ(factor("sgd", "bf16"), "") << "the format of the weights is a factor of its own";
  EXPECT_EQ(factor("momentum"), "momentum:mu=0.9");
  EXPECT_EQ(factor("momentum:mu=0.90"), factor("momentum"));
  EXPECT_EQ(factor("momentum", "bf16"), factor("momentum"));
}

TEST(ScalePlan, MoreServersThanRanksIsARowWithItsReason) {
  const auto points = plan_scale(on_four({"ps-async:servers=4"}));
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.impossible.find("no worker") != std::string::npos; }), 1);
}

TEST(ScalePlan, AMeshSharesItsBatchAmongCopiesOfTheModel) {
  auto f = on_four({"sync"});
  f.meshes = {{}, dataparallel::parse_mesh("tensor=2"), dataparallel::parse_mesh("tensor=3")};
  std::vector<std::size_t> batches;
  std::size_t impossible = 0;
  for (const auto& p : plan_scale(f)) {
    if (p.ranks == 1) {
      EXPECT_EQ(p.mesh.replica_ranks(), 1) << "the baseline is one rank with the whole model";
    }
    if (p.ranks == 4 && p.impossible.empty()) batches.push_back(p.batch_global);
    impossible += !p.impossible.empty();
    if (p.ranks == 4) {
      EXPECT_EQ(baseline_of(p).mesh.replica_ranks(), 1);
    }
  }
  EXPECT_EQ(impossible, 2u) << "4 ranks make no whole copies on 3";
  for (const auto b : batches) EXPECT_TRUE(b == 256 || b == 128) << b;
}

TEST(ScalePlan, APlacementIsAFactorOnlyWhereItTakesOtherRanks) {
  auto f = on_four({"sync"});
  f.ranks = {2, 4, 8};
  f.algorithms = {allreduce::find_algorithm("ring")};
  f.placements = {Placement::packed, Placement::spread};
  f.map = {.node_of = {0, 0, 0, 0, 4, 4, 4, 4}};
  std::map<int, std::multiset<std::string>> placements;
  for (const auto& p : plan_scale(f)) {
    placements[p.ranks].insert(p.placement ? std::string(name(*p.placement)) : "null");
    EXPECT_FALSE(baseline_of(p).placement);
    EXPECT_TRUE(control_of(p).placement == p.placement);
  }
  const std::multiset<std::string> both{"packed", "packed", "spread", "spread"}, neither{"null", "null"};
  EXPECT_EQ(placements[1], neither);
  EXPECT_EQ(placements[2], both);
  EXPECT_EQ(placements[4], both);
  EXPECT_EQ(placements[8], neither) << "all ranks are taken";
  f.map = {.node_of = std::vector<int>(16, 0)};
  for (const auto& p : plan_scale(f)) EXPECT_FALSE(p.placement) << "one node";
}

TEST(ScalePlan, AutomaticOverlapNeedsACoreForEachProgressThread) {
  ScaleFactors f = usual_factors();
  f.ranks = {2, 3};
  f.strategies = {dataparallel::find_strategy("sync"), dataparallel::find_strategy("ps-async")};
  f.overlaps = {Overlap::automatic, Overlap::none};
  f.threads = {1};
  f.cores_per_node = 4;
  std::set<std::string> planned;
  for (const auto& p : plan_scale(f)) {
    if (p.applies.overlap) planned.insert(fmt::format("{} {} {}", p.ranks, p.strategy->info().name, name(p.overlap)));
  }
  EXPECT_EQ(planned, (std::set<std::string>{"2 sync bucketed", "2 sync none", "3 sync none", "2 ps-async bucketed",
                                            "2 ps-async none", "3 ps-async none"}))
      << "three ranks with a thread each for the exchange are six, on four cores";
}

TEST(ScalePlan, AutomaticOverlapOfServersGoesByTheLinkBetweenNodes) {
  using enum Overlap;
  const auto of = [](const char* strategy, Occupancy at) {
    return resolve(automatic, dataparallel::find_strategy(strategy)->info().communication, at);
  };
  const Occupancy node{.threads = 1, .ranks_per_node = 3, .cores_per_node = 4, .ranks = 3};
  const Occupancy nodes{.threads = 1, .ranks_per_node = 3, .cores_per_node = 4, .ranks = 6};
  const Occupancy spare{.threads = 1, .ranks_per_node = 2, .cores_per_node = 4, .ranks = 2};
  EXPECT_EQ(of("ps-sync", node), none) << "servers take the workers' cores";
  EXPECT_EQ(of("ps-sync", nodes), bucketed) << "a link works meanwhile";
  EXPECT_EQ(of("ps-sync", spare), bucketed);
  EXPECT_EQ(of("sync", nodes), none);
}

TEST(ScalePlan, AutomaticOverlapGoesByTheFullestNodeAndTheThreads) {
  using enum Overlap;
  const auto communication = dataparallel::find_strategy("sync")->info().communication;
  EXPECT_EQ(resolve(automatic, communication, {.threads = 1, .ranks_per_node = 2, .cores_per_node = 4}), bucketed);
  EXPECT_EQ(resolve(automatic, communication, {.threads = 1, .ranks_per_node = 2, .cores_per_node = 3}), none);
  EXPECT_EQ(resolve(automatic, communication, {.threads = 3, .ranks_per_node = 1, .cores_per_node = 4}), bucketed);
  EXPECT_EQ(resolve(automatic, communication, {.threads = 4, .ranks_per_node = 1, .cores_per_node = 4}), none);
  EXPECT_EQ(resolve(bucketed, communication, {.threads = 4, .ranks_per_node = 1, .cores_per_node = 4}), bucketed);
}

}  // namespace
}  // namespace gradmeter::bench
