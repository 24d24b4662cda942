// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/schedule.hpp"

#include <gtest/gtest.h>

#include "allreduce/registry.hpp"
#include "allreduce/schedule/algorithms.hpp"
#include "allreduce/schedule/slices.hpp"
#include "allreduce/schedule/verify.hpp"
#include "core/format.hpp"
#include "support/sanitized.hpp"
#include "support/schedule_shapes.hpp"

namespace gradmeter::allreduce {
namespace {

/// Parameters other than the default only change where the steps are; a hundred ranks show whether they are right.
std::vector<std::uint32_t> rank_counts(const std::string& algorithm) {
  std::vector<std::uint32_t> counts{100};
  for (std::uint32_t p = 1; p <= (test::sanitized ? 33u : 64u); ++p) counts.push_back(p);
  if (test::sanitized) return counts;  // with more ranks the time grows with the square, the memory's use is the same
  counts.insert(counts.end(), {127, 128});
  if (algorithm.find(':') == std::string::npos) counts.insert(counts.end(), {1000, 1024});
  return counts;
}

/// Of a thousand ranks on nodes only the smallest and the largest nodes: the others differ as with fewer ranks.
std::vector<RankShape> shapes_to_try(const AlgorithmChoice& algorithm, std::uint32_t p) {
  auto shapes = test::shapes_of(algorithm, p);
  if (p >= 1000 && shapes.size() > 2) shapes = {shapes.front(), shapes.back()};
  return shapes;
}

/// Schedules share the slices: what a rank sends is their mean.
StatedCost counted_over(const std::vector<ScheduleVerdict>& verdicts) {
  StatedCost counted;
  std::vector<double> sent(verdicts.front().cost.blocks_sent.size(), 0.0);
  const auto schedules = static_cast<double>(verdicts.size());
  for (const auto& v : verdicts) {
    counted.rounds = std::max(counted.rounds, v.cost.rounds);
    counted.messages += v.cost.messages;
    for (std::size_t r = 0; r < sent.size(); ++r) sent[r] += v.cost.buffers_sent(r) / schedules;
  }
  counted.messages /= verdicts.size();
  counted.sent_per_rank_max = *std::max_element(sent.begin(), sent.end());
  return counted;
}

/// How often each block is sent and finished by all ranks together, and whether a rank ever moves several at once.
struct Sends {
  std::vector<std::uint64_t> by_block, finishes;
  std::vector<char> runs;
};
Sends sends_of(const Schedule& s) {
  Sends out{.by_block = std::vector<std::uint64_t>(s.blocks(), 0),
            .finishes = std::vector<std::uint64_t>(s.blocks(), 0),
            .runs = std::vector<char>(s.ranks(), 0)};
  Steps steps;
  for (std::uint32_t k = 0; k < s.rounds(); ++k) {
    for (std::uint32_t r = 0; r < s.ranks(); ++r) {
      steps.clear();
      s.steps(k, r, steps);
      for (const Step& x : steps) {
        out.runs[r] |= x.blocks.count > 1;
        for (std::uint32_t b = 0; b < x.blocks.count; ++b) {
          out.by_block[x.blocks.first + b] += x.kind == StepKind::send;
          out.finishes[x.blocks.first + b] += x.kind == StepKind::finish;
        }
      }
    }
  }
  return out;
}

void expect_right_at_the_stated_cost(const AlgorithmChoice& a, RankShape shape, CollectiveKind collective_kind,
                                     std::uint32_t root) {
  const auto where = [&] {
    return fmt::format("{} {} p {} ranks per node {} root {}", a.name, name(collective_kind), shape.ranks,
                       shape.ranks_per_node, root);
  };
  std::vector<ScheduleVerdict> verdicts;
  for (const auto& s : a.make(shape, collective_kind, root)) {
    ASSERT_EQ(s->collective_kind(), collective_kind) << where();
    verdicts.push_back(verify(*s));
    ASSERT_EQ(verdicts.back().fault, "") << where();
    EXPECT_TRUE(verdicts.back().same_bits) << where();
  }
  const StatedCost counted = counted_over(verdicts), stated = a.cost(shape, collective_kind);
  EXPECT_EQ(counted.rounds, stated.rounds) << where();
  EXPECT_EQ(counted.messages, stated.messages) << where();
  EXPECT_DOUBLE_EQ(counted.sent_per_rank_max, stated.sent_per_rank_max) << where();
  if (shape.ranks >= 1000) return;  // what follows differs as with fewer ranks
  for (const auto& s : a.make(shape, collective_kind, root)) {
    const Sends sends = sends_of(*s);
    EXPECT_EQ(sends.by_block, std::vector<std::uint64_t>(s->blocks(), stated.sent)) << where();
    const bool once = std::ranges::all_of(sends.finishes, [](auto n) { return n == 1; });
    EXPECT_TRUE(collective_kind != CollectiveKind::all_reduce || s->ranks() == 1 || once != s->finishes_everywhere())
        << where();
    if (slice_cut_for(collective_kind) == SliceCut::share_of_each_block) {
      EXPECT_EQ(sends.runs, std::vector<char>(s->ranks(), sends.runs.front())) << where();
    }
  }
}

class ScheduleContract : public ::testing::TestWithParam<std::string> {};

TEST_P(ScheduleContract, IsRightWithEqualBitsAtTheStatedCostWhereverItIsSupported) {
  const auto algorithm = find_algorithm(GetParam());
  for (const CollectiveKind collective_kind : test::all_goals) {
    for (const std::uint32_t p : rank_counts(GetParam())) {
      for (const RankShape shape : shapes_to_try(*algorithm, p)) {
        if (!algorithm->refusal(shape, collective_kind).empty()) continue;
        for (const std::uint32_t root : test::roots_of(collective_kind, p)) {
          expect_right_at_the_stated_cost(*algorithm, shape, collective_kind, root);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, ScheduleContract, ::testing::ValuesIn(test::scheduled_algorithms()),
                         [](const auto& param) {
                           std::string n = param.param;
                           for (char& c : n) {
                             if (c == '-' || c == ':' || c == '=') c = '_';
                           }
                           return n;
                         });

TEST(Swing, SendsOneRunOfBlocksInEachRound) {
  for (std::uint32_t p : {2u, 4u, 8u, 64u, 1024u}) {
    const auto s = find_algorithm("swing")->make({p, 1}).front();
    for (std::uint32_t k = 0; k < s->rounds(); ++k) {
      for (std::uint32_t r = 0; r < p; ++r) {
        Steps steps;
        s->steps(k, r, steps);
        EXPECT_EQ(std::ranges::count(steps, StepKind::send, &Step::kind), 1) << p << " round " << k << " rank " << r;
      }
    }
  }
}

TEST(Swing, MeetsNearerRanksThanRecursiveHalving) {
  const auto s = find_algorithm("swing")->make({64, 1}).front();
  std::vector<std::uint32_t> distances;
  for (std::uint32_t k = 0; k < s->rounds() / 2; ++k) {
    Steps steps;
    s->steps(k, 0, steps);
    distances.push_back(std::min(steps.front().peer, 64 - steps.front().peer));
  }
  EXPECT_EQ(distances, (std::vector<std::uint32_t>{1, 1, 3, 5, 11, 21}));
}

TEST(DoubleTree, ALeafOfOneTreeIsAnInnerRankOfTheOther) {
  for (std::uint32_t p : {4u, 6u, 16u, 63u, 64u}) {
    const auto trees = find_algorithm("double-tree")->make({p, 1});
    ASSERT_EQ(trees.size(), 2u);
    const auto first = verify(*trees[0]).cost.blocks_sent, second = verify(*trees[1]).cost.blocks_sent;
    for (std::uint32_t r = 0; r < p; ++r) EXPECT_LE(first[r] + second[r], 4u) << p << " rank " << r;
  }
}

TEST(Embed, RunsInEveryGroupOnItsOwnBlocks) {
  // Three groups of two: ranks {0,3}, {1,4}, {2,5}; group g has blocks 2g and 2g+1 of six.
  const auto s =
      embed(ring_reduce_scatter(2), {.ranks = 6, .blocks = 6, .groups = grid_columns(3), .width = 1, .stride = 2});
  Steps steps;
  s->steps(0, 4, steps);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].peer, 1u);
  EXPECT_EQ(steps[0].blocks, (Blocks{2, 1}));
  EXPECT_EQ(steps[1].blocks, (Blocks{3, 1}));
  EXPECT_EQ(steps[2].kind, StepKind::finish);
  EXPECT_EQ(steps[2].peer, 4u);
}

TEST(Embed, LeavesOutTheFinishOfAPartialSumAndKeepsWhatWasThere) {
  const auto s = embed(ring_reduce_scatter(2), {.ranks = 4, .blocks = 2, .groups = grid_rows(2), .finishes = false});
  Steps steps{{StepKind::finish, 7, {0, 1}}};
  s->steps(0, 3, steps);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].kind, StepKind::finish);
  EXPECT_EQ(steps[1].kind, StepKind::send);
  EXPECT_EQ(steps[2].kind, StepKind::recv_reduce);
}

TEST(EqualWork, IsThatOfAllRanksInEachRound) {
  const auto is_equal = [](const char* algorithm, const std::vector<int>& node_of,
                           CollectiveKind kind = CollectiveKind::all_reduce) {
    const auto schedules = find_algorithm(algorithm)->make(shape_of(node_of), kind);
    return std::ranges::all_of(schedules, [&](const auto& s) { return ranks_have_equal_work(*s, node_of); });
  };
  const std::vector<int> one_node{0, 0, 0, 0}, two_nodes{0, 0, 1, 1}, unlike_nodes{0, 0, 0, 1};
  for (const char* algorithm : {"ring", "direct", "recursive-doubling", "rabenseifner"})
    EXPECT_TRUE(is_equal(algorithm, one_node)) << algorithm;
  EXPECT_FALSE(is_equal("binomial-tree", one_node));
  EXPECT_FALSE(is_equal("double-tree", one_node));
  EXPECT_FALSE(is_equal("binomial-tree", one_node, CollectiveKind::broadcast));
  EXPECT_TRUE(is_equal("direct", two_nodes));
  EXPECT_FALSE(is_equal("ring", two_nodes)) << "of two neighbours of a rank, one is on another node";
  EXPECT_FALSE(is_equal("direct", unlike_nodes)) << "one rank sends everything to another node";
}

}  // namespace
}  // namespace gradmeter::allreduce
