// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/verify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allreduce/registry.hpp"
#include "allreduce/schedule/algorithms.hpp"
#include "support/broken_schedule.hpp"

namespace gradmeter::allreduce {
namespace {

using test::BrokenSchedule;
using ::testing::HasSubstr;

std::string fault_of(const SchedulePtr& inner, const BrokenSchedule::Corruption& corruption) {
  return verify(BrokenSchedule(inner, corruption)).fault;
}

/// Changes one step of rank 2 in round 1.
template <class F>
BrokenSchedule::Corruption at_round_1_rank_2(F change) {
  return [change](std::uint32_t round, std::uint32_t rank, Steps& steps) {
    if (round == 1 && rank == 2) change(steps);
  };
}

TEST(Verifier, RejectsALostReceive) {
  EXPECT_THAT(fault_of(ring(5), at_round_1_rank_2([](Steps& s) { s.pop_back(); })), HasSubstr("does not receive"));
}

TEST(Verifier, RejectsALostContribution) {
  EXPECT_THAT(fault_of(ring(5), at_round_1_rank_2([](Steps& s) { s.back().kind = StepKind::recv; })),
              HasSubstr("summands"));
}

TEST(Verifier, RejectsADoubledContribution) {
  EXPECT_THAT(fault_of(recursive_doubling(4),
                       [](std::uint32_t round, std::uint32_t rank, Steps& s) {
                         // Every rank exchanges with its first partner twice.
                         if (round == 1) s[0].peer = s[1].peer = rank ^ 1u;
                       }),
              HasSubstr("summands"));
}

TEST(Verifier, RejectsCrossedBlocks) {
  EXPECT_THAT(fault_of(ring(5), at_round_1_rank_2([](Steps& s) { s[0].blocks.first = (s[0].blocks.first + 1) % 5; })),
              HasSubstr("expects blocks"));
}

TEST(Verifier, RejectsADeadlock) {
  EXPECT_THAT(fault_of(ring(5), at_round_1_rank_2([](Steps& s) { s.erase(s.begin()); })), HasSubstr("deadlock"));
}

TEST(Verifier, RejectsAMissingAndADoubledFinish) {
  auto drop = [](std::uint32_t, std::uint32_t, Steps& s) {
    std::erase_if(s, [](const Step& x) { return x.kind == StepKind::finish; });
  };
  EXPECT_THAT(fault_of(ring(5), drop), HasSubstr("finished 0 times"));
  auto twice = [](std::uint32_t, std::uint32_t, Steps& s) {
    if (!s.empty() && s.back().kind == StepKind::finish) s.push_back(s.back());
  };
  EXPECT_THAT(fault_of(ring(5), twice), HasSubstr("finished 2 times"));
}

TEST(Verifier, RejectsAStepToANonexistentRank) {
  EXPECT_THAT(fault_of(ring(5), at_round_1_rank_2([](Steps& s) { s[0].peer = 5; })), HasSubstr("outside"));
}

TEST(Verifier, NoticesRanksThatSumInDifferentOrders) {
  // Three ranks: 0 sums (0+1)+2 at once; 2 sums 1+(0+2) in two rounds; 1 copies from 0. Right sums, other bits.
  const auto steps = [](std::uint32_t k, std::uint32_t r, Steps& out) {
    using enum StepKind;
    if (k == 0 && r == 0) out = {{send, 2, {}}, {recv_reduce, 1, {}}, {recv_reduce, 2, {}}};
    if (k == 0 && r == 1) out = {{send, 0, {}}};
    if (k == 0 && r == 2) out = {{send, 0, {}}, {recv_reduce, 0, {}}};
    if (k == 1 && r == 0) out = {{send, 1, {}}, {finish, 0, {}}};
    if (k == 1 && r == 1) out = {{send, 2, {}}, {recv, 0, {}}, {finish, 1, {}}};
    if (k == 1 && r == 2) out = {{recv_reduce, 1, {}}, {finish, 2, {}}};
  };
  const ScheduleVerdict v = verify(Schedule(CollectiveKind::all_reduce, 3, 1, 2, steps));
  EXPECT_EQ(v.fault, "");
  EXPECT_FALSE(v.same_bits);
}

SchedulePtr tree(std::uint32_t ranks) { return find_algorithm("double-tree")->make({ranks, 1}).front(); }

/// Rank 4 of eight has the children 2 and 6, which it adds up in round 1.
template <class F>
BrokenSchedule::Corruption at_the_inner_rank(F change) {
  return [change](std::uint32_t round, std::uint32_t rank, Steps& steps) {
    if (round == 1 && rank == 4) change(steps);
  };
}

TEST(Verifier, RejectsABrokenTree) {
  ASSERT_EQ(verify(*tree(8)).fault, "");
  auto forget = [](Steps& s) { s.pop_back(); };
  EXPECT_THAT(fault_of(tree(8), at_the_inner_rank(forget)), HasSubstr("does not receive"));
  auto replace = [](Steps& s) { s.back().kind = StepKind::recv; };
  EXPECT_THAT(fault_of(tree(8), at_the_inner_rank(replace)), HasSubstr("summands"));
  auto other_child = [](Steps& s) { s.back().peer = 5; };
  EXPECT_THAT(fault_of(tree(8), at_the_inner_rank(other_child)), HasSubstr("deadlock"));
  auto twice = [](std::uint32_t round, std::uint32_t rank, Steps& s) {
    if (round == 1 && (rank == 2 || rank == 4)) s.insert(s.begin(), s.front());
  };
  EXPECT_THAT(fault_of(tree(8), twice), HasSubstr("summands"));
  auto early = [](std::uint32_t round, std::uint32_t rank, Steps& s) {
    if (round == 1 && rank == 4) s.push_back({StepKind::finish, rank, {0, 1}});
  };
  EXPECT_THAT(fault_of(tree(8), early), HasSubstr("finished"));
}

TEST(Verifier, RejectsABrokenAllToAll) {
  const auto swap = [] { return find_algorithm("pairwise")->make({5, 1}, CollectiveKind::all_to_all).front(); };
  const auto direct = [] { return find_algorithm("direct")->make({5, 1}, CollectiveKind::all_to_all).front(); };
  ASSERT_EQ(verify(*swap()).fault, "");
  ASSERT_EQ(verify(*direct()).fault, "");
  // Round 1: ranks 2 and 4 exchange.
  auto lost = [](Steps& s) { s.pop_back(); };
  EXPECT_THAT(fault_of(swap(), at_round_1_rank_2(lost)), HasSubstr("does not receive"));
  auto silent = [](Steps& s) { s.erase(s.begin()); };
  EXPECT_THAT(fault_of(swap(), at_round_1_rank_2(silent)), HasSubstr("deadlock"));
  auto wrong_block = [](Steps& s) { s.front().blocks.first = 3; };
  EXPECT_THAT(fault_of(swap(), at_round_1_rank_2(wrong_block)),
              HasSubstr("rank 4 ends with other contents in block 2"));
  auto wrong_place = [](Steps& s) { s.back().blocks.first = 2; };
  EXPECT_THAT(fault_of(swap(), at_round_1_rank_2(wrong_place)), HasSubstr("other contents"));
  auto two_blocks = [](Steps& s) { s.front().blocks = {3, 2}; };
  EXPECT_THAT(fault_of(swap(), at_round_1_rank_2(two_blocks)), HasSubstr("expects blocks"));
  auto added = [](Steps& s) { s.back().kind = StepKind::recv_reduce; };
  EXPECT_THAT(fault_of(swap(), at_round_1_rank_2(added)), HasSubstr("2 summands"));
  auto crossed = [](std::uint32_t, std::uint32_t rank, Steps& s) {
    if (rank == 2) std::swap(s[5].peer, s[6].peer);  // two of its receives
  };
  EXPECT_THAT(fault_of(direct(), crossed), HasSubstr("other contents"));
}

TEST(Verifier, RejectsASendReceiveThatGoesTheWrongWay) {
  const auto shift = find_algorithm("neighbour")->make({5, 1}, CollectiveKind::send_receive).front();
  auto backwards = [](std::uint32_t, std::uint32_t, Steps& s) { std::swap(s[0].peer, s[1].peer); };
  EXPECT_THAT(fault_of(shift, backwards), HasSubstr("other contents"));
}

}  // namespace
}  // namespace gradmeter::allreduce
