// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/node_map.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "bench/engine/session.hpp"
#include "runtime/threads/thread_group.hpp"

namespace gradmeter::bench {
namespace {

using Ranks = std::vector<int>;

TEST(NodeMap, PackedFillsANodeBeforeTheNext) {
  const NodeMap map{.node_of = {0, 0, 0, 3, 3, 3, 6, 6}};
  EXPECT_EQ(map.ranks_for(2, Placement::packed), (Ranks{0, 1}));
  EXPECT_EQ(map.ranks_for(5, Placement::packed), (Ranks{0, 1, 2, 3, 4}));
}

TEST(NodeMap, SpreadTakesOneOfEachNodeInTurnAndKeepsANodesRanksTogether) {
  const NodeMap map{.node_of = {0, 0, 0, 3, 3, 3, 6, 6}};
  EXPECT_EQ(map.ranks_for(2, Placement::spread), (Ranks{0, 3}));
  EXPECT_EQ(map.ranks_for(4, Placement::spread), (Ranks{0, 1, 3, 6}));
  EXPECT_EQ(map.ranks_for(6, Placement::spread), (Ranks{0, 1, 3, 4, 6, 7}));
  EXPECT_EQ(map.ranks_for(7, Placement::spread), (Ranks{0, 1, 2, 3, 4, 6, 7})) << "a full node gives no more";
}

TEST(NodeMap, ALauncherThatDealsRanksOutInTurnChangesNeither) {
  const NodeMap map{.node_of = {0, 1, 2, 0, 1, 2}};
  EXPECT_EQ(map.ranks_for(2, Placement::packed), (Ranks{0, 3}));
  EXPECT_EQ(map.ranks_for(4, Placement::packed), (Ranks{0, 3, 1, 4}));
  EXPECT_EQ(map.ranks_for(2, Placement::spread), (Ranks{0, 1}));
}

TEST(NodeMap, AllRanksAndOneNodeLeaveNoChoice) {
  const NodeMap one{.node_of = {0, 0, 0, 0}}, two{.node_of = {0, 0, 2, 2}};
  for (const int n : {1, 2, 4}) EXPECT_EQ(one.ranks_for(n, Placement::spread), one.ranks_for(n, Placement::packed));
  EXPECT_EQ(two.ranks_for(4, Placement::spread), two.ranks_for(4, Placement::packed));
}

TEST(NodeMap, CountsNodesAndTheFullestOfThem) {
  const NodeMap map{.node_of = {5, 1, 5, 5, 9, 1}};
  EXPECT_EQ(map.nodes(), 3);
  EXPECT_EQ(map.ranks_per_node(), 3);
  const NodeMap some = map.of(map.ranks_for(4, Placement::spread));
  EXPECT_EQ(some.node_of, (Ranks{5, 5, 1, 9}));
  EXPECT_EQ(some.nodes(), 3);
  EXPECT_EQ(some.ranks_per_node(), 2);
}

TEST(NodeMap, FakeNodesAreSaid) {
  EXPECT_EQ((NodeMap{.node_of = {0, 0, 1}, .fake = true}.mapping()), "fake:0,0,1");
  EXPECT_EQ((NodeMap{.node_of = {0, 0, 1}}.mapping()), "");
}

TEST(NodeMap, NamesTheRanksOfEachNode) {
  const auto text = [](std::vector<int> node_of) { return NodeMap{.node_of = std::move(node_of)}.ranks_by_node(); };
  EXPECT_EQ(text({0}), "0");
  EXPECT_EQ(text({0, 0, 2, 2}), "0-1,2-3");
  EXPECT_EQ(text({0, 1, 0, 1}), "0+2,1+3") << "two ranks make no pattern";
  EXPECT_EQ(text({0, 1, 0, 1, 0, 1, 0, 1}), "0-6:2,1-7:2");
  EXPECT_EQ(text({0, 1, 1, 0, 0}), "0+3-4,1-2");
}

/// The units of a job of as many ranks on one node as `hosts` has elements, each with its own facts.
std::size_t units(const std::vector<runtime::HostFacts>& hosts) {
  std::size_t out = 0;
  runtime::run_thread_ranks(static_cast<int>(hosts.size()), [&](const runtime::Communicator& node) {
    const std::size_t found = units_of_job(node, hosts[static_cast<std::size_t>(node.rank())]);
    if (node.rank() == 0) out = found;
  });
  return out;
}

runtime::HostFacts bound_to(std::vector<std::size_t> bound_units, std::optional<double> quota = {}) {
  runtime::HostFacts host;
  host.processing_units = 8;
  host.bound_units = std::move(bound_units);
  host.cpu_quota = quota;
  return host;
}

TEST(UnitsOfAJob, CountOnceWhereRanksShareThem) {
  EXPECT_EQ(units({bound_to({0}), bound_to({0})}), 1u);
  EXPECT_EQ(units({bound_to({0, 1}), bound_to({1, 5})}), 3u);
  EXPECT_EQ(units({bound_to({4, 5}), bound_to({6, 7})}), 4u) << "a launcher has bound each rank";
  EXPECT_EQ(units({bound_to({0, 1}), bound_to({})}), 8u) << "the units of one rank are not known";
}

TEST(UnitsOfAJob, AreWithinOneQuotaForAllRanks) {
  const auto rank = bound_to({0, 1, 2, 3, 4, 5, 6, 7}, 2.5);
  EXPECT_EQ(units({rank, rank, rank, rank}), 2u);
  EXPECT_EQ(units({bound_to({0}, 2.5), bound_to({0}, 2.5)}), 1u);
  EXPECT_EQ(units({bound_to({0, 1}, 0.5)}), 1u);
}

}  // namespace
}  // namespace gradmeter::bench
