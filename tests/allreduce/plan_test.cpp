#include "allreduce/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allreduce/recursive_doubling.hpp"
#include "allreduce/registry.hpp"
#include "allreduce/ring.hpp"
#include "allreduce/verify_plan.hpp"

namespace gradmeter::allreduce {
namespace {

using ::testing::HasSubstr;

std::vector<Plan> compile_all(const Schedule& s, Placement placement) {
  std::vector<Plan> plans;
  for (std::uint32_t r = 0; r < s.ranks(); ++r) plans.push_back(compile(s, r, placement));
  return plans;
}

TEST(PlanContract, EveryPlanIsFreeOfRacesAndDeadlocksWithTheLatestReader) {
  for (const auto& a : algorithms()) {
    if (a.is_vendor()) continue;
    for (std::uint32_t p : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 12u, 16u, 17u}) {
      for (const auto& s : a.make({p, 1})) {
        for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
          for (const auto reading : {Reading::peer_memory, Reading::landing}) {
            EXPECT_EQ(verify_plans(*s, compile_all(*s, placement), reading), "")
                << a.name << " p " << p << " placement " << int(placement) << " reading " << int(reading);
          }
        }
      }
    }
  }
}

TEST(PlanContract, ThePhasesOfTheRingAreSoundToo) {
  for (std::uint32_t p : {2u, 3u, 8u}) {
    for (const auto& s : {ring_reduce_scatter(p), ring_all_gather(p)}) {
      EXPECT_EQ(verify_plans(*s, compile_all(*s, Placement::out_of_place), Reading::peer_memory), "") << p;
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
