// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "runtime/nccl/communicator.hpp"

namespace gradmeter::bench {
namespace {

const CollectiveInfo& collective(std::string_view name) {
  const auto all = collectives();
  return *std::find_if(all.begin(), all.end(), [&](const auto& c) { return c.name == name; });
}

CollectiveOptions factors() {
  return {.collectives = {&collective("allreduce")},
          .algorithms = {allreduce::find_algorithm("mpi"), allreduce::find_algorithm("ring")},
          .transports = {runtime::TransportKind::automatic},
          .buffers = {BufferKind::arena},
          .in_place = {false, true},
          .sizes = {8, 1024},
          .elements = {core::Element::f32},
          .ops = {allreduce::Op::sum},
          .accumulate_wide = {false},
          .cadences = {runtime::Cadence::barrier},
          .reductions = {RankReduction::max},
          .overlaps = {OverlapLoad::none},
          .roots = {0},
          .interconnect = ""};
}

NodeMap nodes(std::vector<int> of, bool fake = false) { return {.node_of = std::move(of), .fake = fake}; }

TEST(SweepSizes, AreThoseOfNcclTests) {
  EXPECT_EQ(sweep_sizes(8, 128, 0, 2), (std::vector<std::size_t>{8, 16, 32, 64, 128}));
  EXPECT_EQ(sweep_sizes(8, 100, 0, 4), (std::vector<std::size_t>{8, 32}));
  EXPECT_EQ(sweep_sizes(0, 10, 4, 4), (std::vector<std::size_t>{0, 4, 8}));
  EXPECT_EQ(sweep_sizes(8, 8, 0, 2), (std::vector<std::size_t>{8}));
  const std::size_t large = std::size_t{9} << 30;
  EXPECT_EQ(sweep_sizes(large, large, 0, 2).front(), large);
}

TEST(SweepSizes, ThatWouldNeverEndAreRefused) {
  EXPECT_THROW(sweep_sizes(8, 64, 0, 1), core::UsageError);
  EXPECT_THROW(sweep_sizes(0, 64, 0, 2), core::UsageError);
  EXPECT_THROW(sweep_sizes(64, 8, 0, 2), core::UsageError);
  EXPECT_THROW(sweep_sizes(1, 1 << 20, 1, 2), core::UsageError);
}

TEST(SweepSizes, OfDeepBenchAreItsFloats) {
  EXPECT_EQ(deepbench_sizes().size(), 7u);
  EXPECT_EQ(deepbench_sizes().front(), 400000u);
  EXPECT_EQ(deepbench_sizes()[4], 67108864u);
  EXPECT_EQ(deepbench_sizes().back(), 258000000u);
}

TEST(BusBandwidth, HasTheFactorOfItsCollective) {
  EXPECT_DOUBLE_EQ(collective("allreduce").busbw_factor(4), 1.5);
  EXPECT_DOUBLE_EQ(collective("reduce_scatter").busbw_factor(4), 0.75);
  EXPECT_DOUBLE_EQ(collective("all_gather").busbw_factor(4), 0.75);
  EXPECT_DOUBLE_EQ(collective("all_to_all").busbw_factor(4), 0.75);
  EXPECT_DOUBLE_EQ(collective("broadcast").busbw_factor(4), 1);
  EXPECT_DOUBLE_EQ(collective("sendrecv").busbw_factor(4), 1);
}

TEST(EqualWork, IsKnownOnlyOfCollectivesWithoutRootOrTree) {
  CollectivePoint p;
  p.collective = &collective("allreduce");
  p.count = 1024;
  const auto map = nodes({0, 0, 0, 0});
  const auto is_equal = [&](const char* algorithm) {
    return ranks_have_equal_work(p, *allreduce::find_algorithm(algorithm), map);
  };
  EXPECT_TRUE(is_equal("ring"));
  EXPECT_TRUE(is_equal("direct"));
  EXPECT_TRUE(is_equal("shm-direct"));
  EXPECT_FALSE(is_equal("binomial-tree"));
  EXPECT_FALSE(is_equal("mpi")) << "a library's algorithm is not known";
  p.count = 3;
  EXPECT_FALSE(is_equal("direct")) << "a rank has no element of its own";
  p.count = 1024;
  p.collective = &collective("broadcast");
  EXPECT_FALSE(is_equal("direct"));
}

TEST(WireBound, IsWhatANodeMustSend) {
  core::Machine m;
  m.node_port.bytes_per_s = 1e9;
  const auto four = nodes({0, 1, 2, 3}), pairs = nodes({0, 1, 2, 3, 0, 1, 2, 3}), one = nodes({0, 0});
  EXPECT_DOUBLE_EQ(wire_bound(allreduce::CollectiveKind::all_reduce, 1e9, four, m), 1.5);
  EXPECT_DOUBLE_EQ(wire_bound(allreduce::CollectiveKind::all_reduce, 1e9, pairs, m), 1.5);
  EXPECT_DOUBLE_EQ(wire_bound(allreduce::CollectiveKind::all_gather, 1e9, four, m), 0.75);
  EXPECT_DOUBLE_EQ(wire_bound(allreduce::CollectiveKind::broadcast, 1e9, four, m), 1);
  EXPECT_DOUBLE_EQ(wire_bound(allreduce::CollectiveKind::all_to_all, 1e9, four, m), 0.75);
  EXPECT_DOUBLE_EQ(wire_bound(allreduce::CollectiveKind::all_to_all, 1e9, pairs, m), 1.5)
      << "each rank of a node has its own";
  EXPECT_EQ(wire_bound(allreduce::CollectiveKind::all_reduce, 1e9, one, m), 0);
}

TEST(WireBound, OfAllToAllIsThatOfTheBusiestNode) {
  core::Machine m;
  m.node_port.bytes_per_s = 1e9;
  const auto bound = [&m](std::vector<int> of) {
    return wire_bound(allreduce::CollectiveKind::all_to_all, 1e9, nodes(std::move(of)), m);
  };
  // Each of the three ranks of a node sends a quarter of its buffer to the one rank of the other node, and that rank
  // sends three quarters.
  EXPECT_DOUBLE_EQ(bound({0, 0, 0, 3}), 0.75);
  EXPECT_DOUBLE_EQ(bound({0, 0, 0, 0, 4, 4}), 4 * 2 / 6.0);
  EXPECT_DOUBLE_EQ(bound({0, 0, 0, 0, 4, 4, 4, 4, 8, 8}), 4 * 6 / 10.0);
}

TEST(CollectivePlan, PointsOfOneSizeTakeTurnsTogether) {
  const auto points = plan_collectives(factors(), nodes({0, 0}));
  ASSERT_EQ(points.size(), 8u);
  for (std::size_t i = 0; i < points.size(); ++i) EXPECT_EQ(points[i].group, i / 4) << i;
  for (const auto& p : points) EXPECT_EQ(p.transport.has_value(), !p.algorithm->is_vendor());
}

TEST(CollectivePlan, EveryPointHasAKeyOfItsOwn) {
  auto f = factors();
  f.collectives = {&collective("allreduce"), &collective("broadcast"), &collective("all_to_all")};
  f.transports = {runtime::TransportKind::mpi, runtime::TransportKind::shm};
  f.buffers = {BufferKind::arena, BufferKind::plain};
  f.ops = {allreduce::Op::sum, allreduce::Op::max};
  f.elements = {core::Element::f32, core::Element::f64, core::Element::f16};
  f.accumulate_wide = {false, true};
  f.roots = {0, 1};
  f.overlaps = {OverlapLoad::none, OverlapLoad::gemm};
  f.reductions = {RankReduction::max, RankReduction::span};
  const auto map = nodes({0, 0});
  std::set<std::string> keys;
  const auto points = plan_collectives(f, map);
  for (const auto& p : points) keys.insert(to_factors(p, map, f).key());
  EXPECT_EQ(keys.size(), points.size());
}

TEST(CollectivePlan, PlainBuffersCannotBeReadByPeersAndSaySo) {
  auto f = factors();
  f.buffers = {BufferKind::plain};
  f.transports = {runtime::TransportKind::mpi, runtime::TransportKind::shm};
  for (const auto& p : plan_collectives(f, nodes({0, 0}))) {
    EXPECT_EQ(p.unsupported.empty(), p.transport != runtime::TransportKind::shm) << p.algorithm->name;
  }
}

TEST(CollectivePlan, AutomaticTransportIsMpiForMessagesFromPrivateBuffers) {
  using enum runtime::TransportKind;
  auto f = factors();
  f.collectives = {&collective("allreduce"), &collective("all_gather")};
  f.algorithms = {allreduce::find_algorithm("ring"), allreduce::find_algorithm("auto"),
                  allreduce::find_algorithm("0-64K:ring,64K-:direct")};
  f.codecs = {nullptr};
  f.transports = {automatic};
  f.buffers = {BufferKind::arena, BufferKind::plain};
  for (const auto& node_of : {std::vector<int>{0, 0}, std::vector<int>{0, 1}}) {
    const auto shared = node_of[1] == 0 ? shm : hybrid;
    for (const auto& p : plan_collectives(f, nodes(node_of, node_of[1] > 0))) {
      // On one node shm-direct copies private buffers, which only an all-reduce has.
      const bool reads_them = shared == shm && p.algorithm->name == "auto" && p.collective->name == "allreduce";
      EXPECT_EQ(p.transport, p.buffers == BufferKind::arena || reads_them ? shared : mpi)
          << p.algorithm->name << ' ' << p.collective->name << ' ' << name(p.buffers);
      EXPECT_EQ(p.unsupported, "");
    }
  }
  auto threads = nodes({0, 0});
  threads.ranks_as = runtime::RanksAs::threads;
  for (const auto& p : plan_collectives(f, threads)) {
    EXPECT_EQ(p.transport, shm) << "threads have no MPI";
    const bool reads_them = p.algorithm->name == "auto" && p.collective->name == "allreduce";
    EXPECT_EQ(p.unsupported.empty(), p.buffers == BufferKind::arena || reads_them) << p.algorithm->name;
  }
}

TEST(CollectivePlan, SharedMemoryOverSeveralNodesIsUnsupported) {
  auto f = factors();
  f.transports = {runtime::TransportKind::shm, runtime::TransportKind::automatic};
  const auto map = nodes({0, 0, 1, 1}, true);
  int refused = 0;
  for (const auto& p : plan_collectives(f, map)) {
    if (p.transport == runtime::TransportKind::shm) {
      ++refused;
      EXPECT_FALSE(p.unsupported.empty());
    }
    if (p.transport == runtime::TransportKind::hybrid) {
      EXPECT_TRUE(p.unsupported.empty());
    }
  }
  EXPECT_EQ(refused, 4);
  const auto row = to_factors(plan_collectives(f, map).front(), map, f);
  EXPECT_EQ(core::to_text(row[core::Factor::mapping]), "fake:0,0,1,1");
  EXPECT_EQ(core::to_text(row[core::Factor::nodes]), "2");
  EXPECT_EQ(core::to_text(row[core::Factor::ranks_per_node]), "2");
}

TEST(CollectivePlan, AllToAllTakesWholeBlocksAndSizesThatBecomeEqualCountOnce) {
  auto f = factors();
  f.collectives = {&collective("all_to_all")};
  f.sizes = {48, 52, 8};
  std::set<std::size_t> counts;
  for (const auto& p : plan_collectives(f, nodes({0, 0, 0}))) counts.insert(p.count);
  EXPECT_EQ(counts, (std::set<std::size_t>{12}));
}

TEST(CollectivePlan, AnAverageOfIntegersIsUnsupportedAndASumIsNot) {
  auto f = factors();
  f.elements = {core::Element::i32};
  f.ops = {allreduce::Op::sum, allreduce::Op::average};
  for (const auto& p : plan_collectives(f, nodes({0, 0}))) {
    EXPECT_EQ(p.unsupported.empty(), p.op == allreduce::Op::sum);
  }
}

TEST(CollectivePlan, WhatReducesNothingHasNoOperation) {
  auto f = factors();
  f.collectives = {&collective("broadcast")};
  f.ops = {allreduce::Op::sum, allreduce::Op::max};
  const auto points = plan_collectives(f, nodes({0, 0}));
  EXPECT_EQ(points.size(), 8u);
  for (const auto& p : points) EXPECT_FALSE(p.op.has_value());
}

TEST(CollectivePlan, CallsAndRootAreToldApartByTheirProblem) {
  auto f = factors();
  f.collectives = {&collective("broadcast")};
  f.roots = {1};
  f.calls = 20;
  const auto map = nodes({0, 0});
  const auto row = to_factors(plan_collectives(f, map).front(), map, f);
  EXPECT_EQ(core::to_text(row[core::Factor::problem]), "root=1,calls=20");
}

TEST(CollectivePlan, BuffersThatNcclKnowsAreOfNoneOfOurAlgorithms) {
  auto f = factors();
  f.buffers = {BufferKind::registered};
  for (const auto& p : plan_collectives(f, nodes({0, 0}))) {
    if (p.algorithm->info().registers_buffers) continue;
    EXPECT_NE(p.unsupported.find(runtime::nccl_registration_refusal().empty() ? "registers no buffers" : "NCCL"),
              std::string::npos)
        << p.unsupported;
  }
}

TEST(CollectivePlan, RepeatedMeasurementsTakeTurns) {
  auto f = factors();
  const auto map = nodes({0, 0});
  const auto once = plan_collectives(f, map);
  f.repeats = 3;
  const auto points = plan_collectives(f, map);
  ASSERT_EQ(points.size(), 3 * once.size());
  std::set<std::string> keys;
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].repeat, i % 3 + 1);
    EXPECT_EQ(points[i].group, points[i - i % 3].group);
    keys.insert(to_factors(points[i], map, f).key());
  }
  EXPECT_EQ(keys.size(), points.size());
  EXPECT_TRUE(core::is_null(to_factors(once[0], map, f)[core::Factor::repeat]));
}

TEST(CollectivePlan, GraphsAreAFactorOfWhatRunsInAStream) {
  auto f = factors();
  f.algorithms = {allreduce::find_algorithm("nccl"), allreduce::find_algorithm("ring")};
  f.calls = 5;
  f.graph_launches = {0, 3};
  const auto map = nodes({0, 0});
  std::set<std::string> keys;
  const auto points = plan_collectives(f, map);
  EXPECT_EQ(points.size(), 16u);
  for (const auto& p : points) {
    const auto row = to_factors(p, map, f);
    keys.insert(row.key());
    EXPECT_EQ(core::to_text(row[core::Factor::cudagraph]), p.graph_launches > 0 ? "3" : "null");
    EXPECT_EQ(p.calls_of_iteration(), p.graph_launches > 0 ? 15u : 5u);
    const bool refused = p.unsupported.find("cannot be captured") != std::string::npos;
    EXPECT_EQ(refused, p.graph_launches > 0 && p.algorithm->name == "ring") << p.unsupported;
  }
  EXPECT_EQ(keys.size(), points.size());
}

}  // namespace
}  // namespace gradmeter::bench
