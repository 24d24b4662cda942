// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allreduce/registry.hpp"
#include "allreduce/schedule/algorithms.hpp"
#include "allreduce/schedule/verify.hpp"
#include "core/format.hpp"
#include "support/schedule_shapes.hpp"

namespace gradmeter::allreduce {
namespace {

using ::testing::HasSubstr;

std::vector<Plan> compile_all(const Schedule& s, Placement placement, MessageForm form = MessageForm::plain) {
  std::vector<Plan> plans;
  for (std::uint32_t r = 0; r < s.ranks(); ++r) plans.push_back(compile(s, r, placement, form));
  return plans;
}

void expect_sound(const Schedule& s, const std::string& where, MessageForm form = MessageForm::plain) {
  for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
    const auto plans = compile_all(s, placement, form);
    for (const auto delivery : {MessageDelivery::peer_memory, MessageDelivery::landing}) {
      EXPECT_EQ(verify_plans(s, plans, delivery), "")
          << where << " placement " << int(placement) << " reading " << int(delivery);
    }
  }
}

TEST(PlanContract, EveryPlanIsFreeOfRacesAndDeadlocksWithTheLatestReader) {
  for (const auto& algorithm : test::scheduled_algorithms()) {
    const auto choice = find_algorithm(algorithm);
    for (const CollectiveKind collective_kind : test::all_goals) {
      for (std::uint32_t p : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 12u, 16u, 17u}) {
        for (const RankShape shape : test::shapes_of(*choice, p)) {
          if (!choice->refusal(shape, collective_kind).empty()) continue;
          for (const auto& s : choice->make(shape, collective_kind, p - 1)) {
            const auto where =
                fmt::format("{} {} p {} per node {}", algorithm, name(collective_kind), p, shape.ranks_per_node);
            expect_sound(*s, where);
            if (coded_refusal(*s).empty()) expect_sound(*s, where + " coded", MessageForm::coded);
          }
        }
      }
    }
  }
}

TEST(PlanVerifier, RejectsReducingInPlaceWhileThePeerReads) {
  const auto s = recursive_doubling(4);
  auto plans = compile_all(*s, Placement::in_place);
  for (auto& plan : plans) {
    for (auto& r : plan.reductions) r.own_place = r.to = Place::out, r.sends_before_write = 0;
    for (auto& x : plan.sends) x.from = Place::out;
    for (auto& f : plan.finishes) f.from = Place::out;
  }
  EXPECT_THAT(verify_plans(*s, plans, MessageDelivery::peer_memory), HasSubstr("race"));
}

TEST(PlanVerifier, RejectsAFenceThatWaitsForItsOwnRound) {
  const auto s = recursive_doubling(4);
  auto plans = compile_all(*s, Placement::in_place);
  for (auto& plan : plans) {
    for (std::uint32_t i = 0; i < plan.reductions.size(); ++i) plan.reductions[i].sends_before_write = i + 1;
  }
  EXPECT_THAT(verify_plans(*s, plans, MessageDelivery::peer_memory), HasSubstr("deadlock"));
}

TEST(PlanVerifier, RejectsAMissingFence) {
  // Four rounds of doubling return to a place that the partner of two rounds ago may still read.
  const auto s = recursive_doubling(16);
  auto plans = compile_all(*s, Placement::in_place);
  bool had_sends_before = false;
  for (auto& plan : plans) {
    for (auto& r : plan.reductions) had_sends_before |= r.sends_before_write > 0, r.sends_before_write = 0;
    for (auto& f : plan.finishes) had_sends_before |= f.sends_before_write > 0, f.sends_before_write = 0;
  }
  ASSERT_TRUE(had_sends_before);
  EXPECT_THAT(verify_plans(*s, plans, MessageDelivery::peer_memory), HasSubstr("race"));
}

TEST(PlanVerifier, RejectsAnEarlyLanding) {
  // The ring's all-gather receives straight into `out`; without waiting for sends the block may still be on its way
  // out.
  const auto s = ring(3);
  auto plans = compile_all(*s, Placement::in_place);
  bool had_sends_before = false;
  for (auto& plan : plans) {
    for (auto& x : plan.receives) had_sends_before |= x.direct && x.sends_before_write > 0, x.sends_before_write = 0;
  }
  ASSERT_TRUE(had_sends_before);
  EXPECT_THAT(verify_plans(*s, plans, MessageDelivery::landing), HasSubstr("race"));
}

TEST(PlanVerifier, RejectsALostCopy) {
  const auto s = recursive_doubling(4);
  auto plans = compile_all(*s, Placement::out_of_place);
  for (auto& plan : plans) {
    for (auto& f : plan.finishes) f.from = Place::in;  // the own contribution instead of the sum
  }
  EXPECT_THAT(verify_plans(*s, plans, MessageDelivery::peer_memory), HasSubstr("wrong value"));
}

TEST(PlanVerifier, RejectsARunThatIsSentBeforeTheOwnBlockIsInIt) {
  const auto s = find_algorithm("rabenseifner")->make({4, 1}, CollectiveKind::all_gather).front();
  auto plans = compile_all(*s, Placement::out_of_place);
  ASSERT_EQ(verify_plans(*s, plans, MessageDelivery::peer_memory), "");
  for (auto& plan : plans) {
    ASSERT_EQ(plan.first_copies.size(), 1u);
    plan.copies = std::exchange(plan.first_copies, {});
  }
  EXPECT_THAT(verify_plans(*s, plans, MessageDelivery::peer_memory), HasSubstr("wrong value"));
}

TEST(CodedPlan, OfAScheduleWhoseSumsSeveralRanksFinishIsRefusedAndWouldEndWithDifferentValues) {
  EXPECT_THROW(compile(*recursive_doubling(4), 0, Placement::in_place, MessageForm::coded), std::logic_error);
  // As if every rank of the all-gather encoded the sums anew in place of passing their bytes on.
  const auto s = ring(3);
  auto plans = compile_all(*s, Placement::in_place, MessageForm::coded);
  ASSERT_EQ(verify_plans(*s, plans, MessageDelivery::peer_memory), "");
  for (auto& plan : plans) {
    auto& last = plan.rounds.back();
    last.encodes = {static_cast<std::uint32_t>(plan.encodes.size()), 1};
    plan.encodes.push_back({plan.sends[last.sends.first].blocks, Place::out, 0});
  }
  EXPECT_NE(verify_plans(*s, plans, MessageDelivery::peer_memory), "");
}

TEST(CodedPlan, NeedsItsFences) {
  // Finished bytes land where the partial sum of the same block lay, which may still be on its way out.
  const auto s = ring(3);
  auto plans = compile_all(*s, Placement::in_place, MessageForm::coded);
  ASSERT_EQ(verify_plans(*s, plans, MessageDelivery::landing), "");
  bool had_sends_before = false;
  for (auto& plan : plans) {
    for (auto& x : plan.receives) had_sends_before |= x.sends_before_write > 0, x.sends_before_write = 0;
    for (auto& x : plan.finishes) had_sends_before |= x.sends_before_write > 0, x.sends_before_write = 0;
  }
  ASSERT_TRUE(had_sends_before);
  EXPECT_THAT(verify_plans(*s, plans, MessageDelivery::landing), HasSubstr("race"));
}

TEST(CodedPlan, EncodesAFinishedSumOnceAndPassesItsBytesOn) {
  const Plan plan = compile(*ring(4), 1, Placement::in_place, MessageForm::coded);
  EXPECT_EQ(plan.encodes.size(), 3u) << "one partial sum a hop, none for what is finished";
  ASSERT_EQ(plan.finishes.size(), 1u);
  EXPECT_TRUE(plan.finishes[0].encodes);
  EXPECT_FALSE(plan.uses_alternate);
  std::vector<bool> forwards;
  for (const auto& x : plan.receives) {
    if (x.direct) forwards.push_back(x.forwards);
  }
  EXPECT_EQ(forwards, (std::vector<bool>{true, true, false}));
}

TEST(Plan, OutOfPlaceDoublingChoosesTheAlternationThatNeedsNoCopy) {
  for (std::uint32_t p : {2u, 4u, 8u, 16u}) {
    const Plan plan = compile(*recursive_doubling(p), 0, Placement::out_of_place);
    EXPECT_TRUE(plan.copies.empty());
    for (const auto& f : plan.finishes) EXPECT_EQ(f.from, Place::out) << p;
  }
}

TEST(Plan, TheRingNeedsNoAlternateMemory) {
  for (std::uint32_t p : {2u, 3u, 8u}) {
    EXPECT_FALSE(compile(*ring(p), 0, Placement::in_place).uses_alternate);
    EXPECT_FALSE(compile(*ring(p), 0, Placement::out_of_place).uses_alternate);
  }
}

TEST(Plan, AllReductionsOfABlockInARoundAreOneSumInRankOrder) {
  const Schedule star(CollectiveKind::all_reduce, 4, 1, 2, [](std::uint32_t k, std::uint32_t r, Steps& out) {
    using enum StepKind;
    if (k == 0 && r != 2) out = {{send, 2, {}}};
    if (k == 0 && r == 2) out = {{recv_reduce, 3, {}}, {recv_reduce, 0, {}}, {recv_reduce, 1, {}}, {finish, 2, {}}};
    if (k == 1 && r == 2) out = {{send, 0, {}}, {send, 1, {}}, {send, 3, {}}};
    if (k == 1 && r != 2) out = {{recv, 2, {}}};
  });
  const Plan plan = compile(star, 2, Placement::in_place);
  ASSERT_EQ(plan.reductions.size(), 1u);
  // Receives stand in step order (from 3, 0, 1); operands in rank order (0, 1, own, 3).
  EXPECT_THAT(plan.operands, ::testing::ElementsAre(1u, 2u, own_operand, 0u));
  EXPECT_EQ(verify_plans(star, compile_all(star, Placement::in_place), MessageDelivery::peer_memory), "");
}

}  // namespace
}  // namespace gradmeter::allreduce
