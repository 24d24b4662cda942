// SPDX-License-Identifier: Apache-2.0
// The lower bound of a collective on one node: the least memory traffic of its ranks.
#include "bench/allreduce/limits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace gradmeter::bench {
namespace {

using allreduce::CollectiveKind;

LeastTraffic least(CollectiveKind collective_kind, std::size_t ranks, bool in_place, bool is_root = false) {
  return least_traffic(collective_kind, 12, ranks, in_place, is_root);
}

TEST(LeastTraffic, IsWhatNoRankCanDoWithout) {
  for (const bool in_place : {false, true}) {
    const Traffic moves = in_place ? Traffic::update : Traffic::copy;
    EXPECT_EQ(least(CollectiveKind::all_reduce, 4, in_place), (LeastTraffic{moves, 12}));
    EXPECT_EQ(least(CollectiveKind::send_receive, 4, in_place), (LeastTraffic{moves, 12}));
    EXPECT_EQ(least(CollectiveKind::reduce_scatter, 4, in_place), (LeastTraffic{Traffic::reduce, 12}));
    EXPECT_EQ(least(CollectiveKind::broadcast, 4, in_place), (LeastTraffic{Traffic::write, 12}));
    EXPECT_EQ(least(CollectiveKind::all_gather, 4, in_place), (LeastTraffic{Traffic::write, in_place ? 9u : 12u}));
    EXPECT_EQ(least(CollectiveKind::all_to_all, 4, in_place), (LeastTraffic{moves, in_place ? 9u : 12u}));
  }
  EXPECT_EQ(least(CollectiveKind::broadcast, 4, true, true), LeastTraffic{}) << "a root has it already";
  EXPECT_EQ(least(CollectiveKind::broadcast, 4, false, true), (LeastTraffic{Traffic::write, 12}));
  EXPECT_EQ(least(CollectiveKind::reduce_scatter, 13, false), LeastTraffic{}) << "some ranks have no block";
}

TEST(CodecEstimate, IsOfAlgorithmsThatSendAsAReduceScatterAndAnAllGather) {
  const auto has_estimate = [](const char* name, std::uint32_t ranks) {
    return costs_as_scatter_and_gather(*allreduce::find_algorithm(name), {.ranks = ranks, .ranks_per_node = ranks});
  };
  for (const std::uint32_t ranks : {2u, 4u, 7u}) {
    EXPECT_TRUE(has_estimate("direct", ranks)) << ranks;
    EXPECT_TRUE(has_estimate("ring", ranks)) << ranks;
    EXPECT_FALSE(has_estimate("one-shot", ranks)) << ranks;
    EXPECT_FALSE(has_estimate("auto", ranks)) << "which algorithm it takes is not known here";
  }
  EXPECT_FALSE(has_estimate("mpi", 4));
}

TEST(LeastTraffic, OfOneRankIsNothingInPlace) {
  for (const auto collective_kind :
       {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
        CollectiveKind::broadcast, CollectiveKind::all_to_all, CollectiveKind::send_receive}) {
    EXPECT_EQ(least(collective_kind, 1, true), LeastTraffic{});
    EXPECT_EQ(least(collective_kind, 1, false), (LeastTraffic{Traffic::copy, 12}));
  }
}

/// How many of the elements of `out`, which was -1 all over, are other numbers now.
std::size_t changed(LeastTraffic t, std::size_t ranks, std::vector<float>& in, std::vector<float>& out) {
  const auto before = out;
  LeastWork work(t, ranks);
  work.start({in, out});
  EXPECT_TRUE(work.advance());
  std::size_t n = 0;
  for (std::size_t i = 0; i < out.size(); ++i) n += out[i] != before[i] ? 1 : 0;
  return n;
}

TEST(LeastWork, TouchesWhatItSays) {
  std::vector<float> in{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, out(12, -1.0f);
  EXPECT_EQ(changed({Traffic::copy, 9}, 4, in, out), 9u);
  EXPECT_EQ(out[8], 9);
  out.assign(12, -1.0f);
  EXPECT_EQ(changed({Traffic::write, 7}, 4, in, out), 7u);
  out.assign(12, -1.0f);
  EXPECT_EQ(changed({Traffic::reduce, 12}, 4, in, out), 3u);
  EXPECT_EQ(out[0], 1 + 4 + 7 + 10) << "every number is read";
  EXPECT_EQ(changed({}, 4, in, out), 0u);
  const auto before = in;
  EXPECT_EQ(changed({Traffic::update, 12}, 4, in, in), 0u);
  EXPECT_EQ(in, before) << "what is rewritten stays what it was";
}

TEST(LeastWork, CopiesALongBufferInBothWays) {
  std::vector<float> in(std::size_t{1} << 23, 0.0f), out(in.size(), -1.0f);
  LeastWork work({Traffic::copy, in.size()}, 2);
  for (float call = 1; call <= 12; ++call) {
    std::ranges::fill(in, call);
    work.start({in, out});
    EXPECT_EQ(out, in) << "call " << call;
  }
}

TEST(WireLimit, JudgesOnlyTimesThatIncludeTheSlowestRank) {
  const NodeMap two_nodes{.node_of = {0, 1}};
  core::Machine machine;
  machine.node_port.bytes_per_s = 1e9;
  CollectivePoint p;
  p.collective = &collectives().front();
  p.count = 250'000'000;
  for (const auto reduction : rank_reductions()) {
    p.reduction = reduction;
    const auto limit = wire_limit(p, two_nodes, machine);
    EXPECT_DOUBLE_EQ(limit.seconds, 1) << name(reduction);
    const bool judges = reduction == RankReduction::max || reduction == RankReduction::span;
    EXPECT_DOUBLE_EQ(limit.low, judges ? 0.95 : 0) << name(reduction);
  }
}

TEST(WireLimit, JudgesNoBroadcastSinceItsRateIsThatOfBothDirections) {
  core::Machine machine;
  machine.node_port.bytes_per_s = 1e9;
  CollectivePoint p;
  p.count = 250'000'000;
  for (const auto& collective : collectives()) {
    p.collective = &collective;
    const auto limit = wire_limit(p, {.node_of = {0, 1}}, machine);
    EXPECT_GT(limit.seconds, 0) << collective.name;
    EXPECT_EQ(limit.low > 0, collective.collective_kind != CollectiveKind::broadcast) << collective.name;
  }
}

TEST(LeastTraffic, ComparesRanksOnlyWhereItIsEqual) {
  CollectivePoint p;
  for (const auto& collective : collectives()) {
    p.collective = &collective;
    for (const bool in_place : {false, true}) {
      p.in_place = in_place;
      p.count = 12;
      const bool is_rooted = collective.has_root && in_place;
      EXPECT_EQ(have_equal_traffic(p, 4), !is_rooted) << collective.name << (in_place ? " in place" : "");
      p.count = 0;
      EXPECT_FALSE(have_equal_traffic(p, 4)) << collective.name << ": there is nothing to compare";
    }
  }
}

}  // namespace
}  // namespace gradmeter::bench
