#include "allreduce/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allreduce/registry.hpp"
#include "allreduce/schedules/recursive_doubling.hpp"
#include "allreduce/schedules/ring.hpp"
#include "allreduce/verify_plan.hpp"
#include "core/format.hpp"
#include "support/schedule_shapes.hpp"

namespace gradmeter::allreduce {
namespace {

using ::testing::HasSubstr;

std::vector<Plan> compile_all(const Schedule& s, Placement placement) {
  std::vector<Plan> plans;
  for (std::uint32_t r = 0; r < s.ranks(); ++r) plans.push_back(compile(s, r, placement));
  return plans;
}

void expect_sound(const Schedule& s, const std::string& where) {
  for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
    const auto plans = compile_all(s, placement);
    for (const auto reading : {Reading::peer_memory, Reading::landing}) {
      EXPECT_EQ(verify_plans(s, plans, reading), "")
          << where << " placement " << int(placement) << " reading " << int(reading);
    }
  }
}

TEST(PlanContract, EveryPlanIsFreeOfRacesAndDeadlocksWithTheLatestReader) {
  for (const auto& algorithm : test::scheduled_algorithms()) {
    const auto choice = find_algorithm(algorithm);
    for (const Goal goal : test::all_goals) {
      for (std::uint32_t p : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 12u, 16u, 17u}) {
        for (const Shape shape : test::shapes_of(*choice, p)) {
          if (!choice->refusal(shape, goal).empty()) continue;
          for (const auto& s : choice->make(shape, goal, p - 1)) {
            expect_sound(*s, fmt::format("{} {} p {} per node {}", algorithm, name(goal), p, shape.ranks_per_node));
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
    for (auto& r : plan.reductions) r.own = r.to = Place::out, r.fence = 0;
    for (auto& x : plan.sends) x.from = Place::out;
    for (auto& f : plan.finishes) f.from = Place::out;
  }
  EXPECT_THAT(verify_plans(*s, plans, Reading::peer_memory), HasSubstr("race"));
}

TEST(PlanVerifier, RejectsAFenceThatWaitsForItsOwnRound) {
  const auto s = recursive_doubling(4);
  auto plans = compile_all(*s, Placement::in_place);
  for (auto& plan : plans) {
    for (std::uint32_t i = 0; i < plan.reductions.size(); ++i) plan.reductions[i].fence = i + 1;
  }
  EXPECT_THAT(verify_plans(*s, plans, Reading::peer_memory), HasSubstr("deadlock"));
}

TEST(PlanVerifier, RejectsAMissingFence) {
  // Four rounds of doubling return to a place that the partner of two rounds ago may still read.
  const auto s = recursive_doubling(16);
  auto plans = compile_all(*s, Placement::in_place);
  bool had_fence = false;
  for (auto& plan : plans) {
    for (auto& r : plan.reductions) had_fence |= r.fence > 0, r.fence = 0;
    for (auto& f : plan.finishes) had_fence |= f.fence > 0, f.fence = 0;
  }
  ASSERT_TRUE(had_fence);
  EXPECT_THAT(verify_plans(*s, plans, Reading::peer_memory), HasSubstr("race"));
}

TEST(PlanVerifier, RejectsAnEarlyLanding) {
  // The ring's all-gather receives straight into `out`; without its fence the block may still be on its way out.
  const auto s = ring(3);
  auto plans = compile_all(*s, Placement::in_place);
  bool had_fence = false;
  for (auto& plan : plans) {
    for (auto& x : plan.receives) had_fence |= x.direct && x.fence > 0, x.fence = 0;
  }
  ASSERT_TRUE(had_fence);
  EXPECT_THAT(verify_plans(*s, plans, Reading::landing), HasSubstr("race"));
}

TEST(PlanVerifier, RejectsALostCopy) {
  const auto s = recursive_doubling(4);
  auto plans = compile_all(*s, Placement::out_of_place);
  for (auto& plan : plans) {
    for (auto& f : plan.finishes) f.from = Place::in;  // the own contribution instead of the sum
  }
  EXPECT_THAT(verify_plans(*s, plans, Reading::peer_memory), HasSubstr("wrong value"));
}

TEST(PlanVerifier, RejectsARunThatIsSentBeforeTheOwnBlockIsInIt) {
  const auto s = find_algorithm("rabenseifner")->make({4, 1}, Goal::all_gather).front();
  auto plans = compile_all(*s, Placement::out_of_place);
  ASSERT_EQ(verify_plans(*s, plans, Reading::peer_memory), "");
  for (auto& plan : plans) {
    ASSERT_EQ(plan.first_copies.size(), 1u);
    plan.copies = std::exchange(plan.first_copies, {});
  }
  EXPECT_THAT(verify_plans(*s, plans, Reading::peer_memory), HasSubstr("wrong value"));
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
  class Star final : public FixedSchedule {
   public:
    Star() : FixedSchedule(Goal::all_reduce, 4, 1, 2) {}
    void steps(std::uint32_t k, std::uint32_t r, Steps& out) const override {
      using enum StepKind;
      if (k == 0 && r != 2) out = {{send, 2, {}}};
      if (k == 0 && r == 2) out = {{recv_reduce, 3, {}}, {recv_reduce, 0, {}}, {recv_reduce, 1, {}}, {finish, 2, {}}};
      if (k == 1 && r == 2) out = {{send, 0, {}}, {send, 1, {}}, {send, 3, {}}};
      if (k == 1 && r != 2) out = {{recv, 2, {}}};
    }
  };
  const Plan plan = compile(Star(), 2, Placement::in_place);
  ASSERT_EQ(plan.reductions.size(), 1u);
  // Receives stand in step order (from 3, 0, 1); operands in rank order (0, 1, own, 3).
  EXPECT_THAT(plan.operands, ::testing::ElementsAre(1u, 2u, own_operand, 0u));
  EXPECT_EQ(verify_plans(Star(), compile_all(Star(), Placement::in_place), Reading::peer_memory), "");
}

}  // namespace
}  // namespace gradmeter::allreduce
