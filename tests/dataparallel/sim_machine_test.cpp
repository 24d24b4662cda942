// SPDX-License-Identifier: Apache-2.0
// What virtual time takes from the machine's description: links between nodes, ports, the trunk, rates, noise, codecs.
#include "dataparallel/fabric/simulation/world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compression/crossover.hpp"
#include "core/format.hpp"
#include "support/sim_machine.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using gradmeter::test::StrategyRun;
using test::slow_machine;

/// Two ranks a node.
SimMachine two_nodes() {
  SimMachine m;
  m.machine = gradmeter::test::linked(0, 1e9, 1e30, m.machine);
  m.machine.ranks_per_node = 2;
  m.machine.between_nodes = {.latency_s = 0, .bandwidth = {{.bytes_per_s = 1e8}}};
  return m;
}

double last_end(int ranks, const SimMachine& m, const std::function<void(Fabric&)>& body) {
  return std::ranges::max(SimWorld(ranks, m).run(body));
}

double all_reduce_time(const SimMachine& m) {
  return last_end(
      4, m, [](Fabric& f) { f.wait(f.all_reduce(everybody, f.memory(1 << 16), allreduce::Op::sum, f.record())); });
}

TEST(SimCores, RanksThatShareOneComputeInTurn) {
  SimMachine m;
  m.machine.flops_per_s = 1e9;
  const auto end = [&](std::size_t cores, int computing) {
    m.shared_cores = cores;
    return last_end(4, m, [&](Fabric& f) {
      for (int i = 0; i < 3 && f.rank() < computing; ++i) f.submit("product", {.flops = 1e9}, [] {});
    });
  };
  EXPECT_NEAR(end(0, 4), 3, 1e-9) << "each has its own";
  EXPECT_NEAR(end(2, 4), 6, 1e-9);
  EXPECT_NEAR(end(2, 2), 3, 1e-9) << "those that rest take nothing from others";
}

/// Both ranks of the first node send to the second node at once.
double messages_time(const SimMachine& m) {
  return last_end(4, m, [](Fabric& f) {
    const Buffer b = f.memory(1 << 16);
    const int rank = f.rank();
    f.wait(rank < 2 ? f.send(everybody, rank + 2, b, f.record()) : f.receive(everybody, rank - 2, b));
  });
}

TEST(SimNodes, MessagesBetweenThemTakeTheirLinkPortAndTrunk) {
  constexpr double bytes = 4.0 * (1 << 16);
  SimMachine m = two_nodes();
  EXPECT_NEAR(messages_time(m), bytes / 1e8, 1e-12) << "each rank has its own way";
  m.machine.node_port.bytes_per_s = 1e8;
  EXPECT_NEAR(messages_time(m), 2 * bytes / 1e8, 1e-12) << "the port takes one after the other";
  m.machine.node_port.bytes_per_s = 0;
  m.machine.trunk = core::Link{.latency_s = 1, .bandwidth = {{.bytes_per_s = 1e8}}};
  EXPECT_NEAR(messages_time(m), 1 + 2 * bytes / 1e8, 1e-9) << "and so does the trunk";
}

TEST(SimNodes, CollectivesTakeThemToo) {
  SimMachine m = two_nodes();
  const double apart = all_reduce_time(m);
  m.machine.ranks_per_node = 0;
  EXPECT_GT(apart, 5 * all_reduce_time(m)) << "a ring is as fast as its slowest link";
  m.machine.ranks_per_node = 2;
  m.machine.node_port.bytes_per_s = 1e7;
  EXPECT_GT(all_reduce_time(m), 5 * apart);
}

TEST(SimNodes, GroupsLieWhereTheirRanksDo) {
  const auto time = [](int color_of_node) {
    return last_end(4, two_nodes(), [&](Fabric& f) {
      const int node = f.rank() / 2, place = f.rank() % 2;
      const Group g = f.split(color_of_node ? node : place, f.rank());
      f.wait(f.all_reduce(g, f.memory(1 << 16), allreduce::Op::sum, f.record()));
    });
  };
  EXPECT_GT(time(0), 5 * time(1)) << "pairs across the border have the slow link";
}

TEST(SimPorts, ARankSendsOneMessageAtATimeInCollectivesToo) {
  SimMachine m = two_nodes();
  m.machine.ranks_per_node = 0;
  m.algorithm = allreduce::find_algorithm("one-shot");
  constexpr double bytes = 4.0 * (1 << 16);
  EXPECT_NEAR(all_reduce_time(m), 3 * bytes / 1e9, 1e-9);
}

TEST(SimCompute, TakesTheRateOfItsOperationAndNoise) {
  SimMachine m = slow_machine();
  m.machine.compute = {{.operation = "gemm", .precision = {}, .shape_class = {}, .flops_per_s = 10}};
  const auto ends = [&] {
    return SimWorld(3, m).run([](Fabric& f) {
      for (int i = 0; i < 100; ++i) f.submit("forward.gemm", {.flops = 10}, [] {});
      f.submit("forward.softmax", {.flops = 5}, [] {});
    });
  };
  EXPECT_THAT(ends(), ::testing::Each(::testing::DoubleNear(105, 1e-9)));
  m.machine.noise = 0.1;
  const auto noisy = ends();
  EXPECT_EQ(noisy, ends()) << "the same every time";
  EXPECT_NE(noisy[0], noisy[1]);
  for (const double end : noisy) EXPECT_NEAR(end, 105, 5);
}

/// Strategies whose messages depend on their numbers are left out: `population` ranks models by their losses.
TEST(TimeOnly, HasTheTimesOfARunThatComputesForEveryStrategy) {
  for (const auto& row : strategies()) {
    if (row.name == "population") continue;
    StrategyRun run{.strategy = std::string(row.name), .steps = 4};
    run.machine = two_nodes();
    run.machine.machine.node_port.bytes_per_s = 2e8;
    std::vector<double> whole, time_only;
    const auto times = [&](int ranks) {
      return SimWorld(ranks, run.machine).run([&](Fabric& f) { (void)gradmeter::test::run_worker(f, run); });
    };
    whole = times(4);
    run.machine.time_only = true;
    time_only = times(4);
    EXPECT_EQ(time_only, whole) << row.name;
  }
}

TEST(TimeOnly, RunsNoWorkAndMovesNoNumbers) {
  SimMachine m = two_nodes();
  m.time_only = true;
  SimWorld(4, m).run([](Fabric& f) {
    const Buffer b = f.memory(100);
    f.submit("forward.gemm", {.flops = 1e9}, [] { FAIL() << "this was run"; });
    b.values<float>()[0] = static_cast<float>(f.rank());
    f.wait(f.all_reduce(everybody, b, allreduce::Op::sum, f.record()));
    EXPECT_EQ(b.values<float>()[0], static_cast<float>(f.rank()));
  });
}

TEST(TimeOnly, AThousandRanksSendTheBytesOfTheForecast) {
  SimMachine m;
  m.time_only = true;
  const int ranks = 1000;
  std::uint64_t bytes = 0;
  SimWorld(ranks, m).run([&](Fabric& f) {
    const auto t = f.all_reduce(everybody, f.memory(100'000), allreduce::Op::sum, f.record());
    f.wait(t);
    bytes += t->completion().bytes_sent;
  });
  EXPECT_EQ(bytes, std::uint64_t{2} * (ranks - 1) * 100'000 * sizeof(float));
}

/// A ring of one slice, on links without latency: compression::estimate's exchange.
TEST(TimeOnly, ACodecTakesTheTimeOfItsEstimate) {
  constexpr std::size_t n = 1 << 20;
  SimMachine m;
  m.machine = gradmeter::test::linked(0, 1e9, 2e9, m.machine);
  m.machine.codecs["qsgd8"] = {.encode = 1e9, .decode = 2e9, .add = 3e9};
  m.codec = compression::find_codec("qsgd8");
  m.message_bytes = 1 << 30;
  m.time_only = true;
  const std::vector<allreduce::TensorPart> parts{{.count = n}};
  const auto time = [&] {
    return last_end(4, m, [&](Fabric& f) {
      f.wait(f.all_reduce(everybody, f.memory(n), allreduce::Op::sum, f.record(), {.tensors = parts}));
    });
  };
  const double wire_bits = 8.0 * static_cast<double>(m.codec->codec->wire_bytes(n)) / n;
  const auto expected = compression::estimate(m.machine, "qsgd8", 4, n, wire_bits);
  EXPECT_NEAR(time(), expected.predicted_s, 1e-6 * expected.predicted_s);
  m.machine.codecs.clear();
  EXPECT_THROW(time(), std::logic_error);
  m.time_only = false;
  EXPECT_THROW(time(), std::logic_error) << "numbers are not encoded here";
}

}  // namespace
}  // namespace gradmeter::dataparallel
