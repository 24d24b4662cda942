// SPDX-License-Identifier: Apache-2.0
// The causes of lost time and the verdict on them, on blocks made by hand.
#include "bench/scale/causes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

namespace gradmeter::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr std::size_t blocks = 8;

/// The same block eight times; `noise` is added to the step of every other one.
Measurement measured(const StepBlock& b, double noise = 0) {
  Measurement m;
  for (std::size_t i = 0; i < blocks; ++i) {
    StepBlock c = b;
    c.round = i;
    if (i % 2 == 1) c.step += noise;
    m.blocks.push_back(c);
  }
  return m;
}

StepBlock one_rank(double step) { return {.step = step, .parts = {.compute = step}, .compute = {step}}; }

/// The slowest rank is where the most is computed.
StepBlock lock_step(double step, std::vector<double> compute, double exposed = 0, double wait = 0) {
  StepBlock b{.step = step, .parts = {.exposed = exposed, .wait = wait}, .compute = std::move(compute)};
  b.longest_rank = static_cast<int>(std::max_element(b.compute.begin(), b.compute.end()) - b.compute.begin());
  b.parts.compute = b.compute[static_cast<std::size_t>(b.longest_rank)];
  return b;
}

/// Kernels that vary from block to block by up to `most` to both sides.
void vary(Measurement& m, double most) {
  constexpr std::array shares{-1.0, 0.6, -0.3, 0.1, -0.1, 0.3, -0.6, 1.0};
  for (std::size_t i = 0; i < blocks; ++i) {
    m.blocks[i].step += most * shares[i];
    m.blocks[i].parts.compute += most * shares[i];
  }
}

double step_of(const Measurement& m) {
  std::vector<double> steps;
  for (const auto& b : m.blocks) steps.push_back(b.step);
  return core::median(steps);
}

struct Three {
  Measurement base, control, point;
  ComparedBlocks compared(double ideal_speedup = 1, bool in_lock_step = true) const {
    auto b = pair_blocks(base, control, point);
    b.ideal_speedup = ideal_speedup;
    b.lock_step = in_lock_step;
    return b;
  }
  Causes causes(double ideal_speedup = 1, bool in_lock_step = true) const {
    return find_causes(compared(ideal_speedup, in_lock_step), step_of(point), step_of(base), step_of(control));
  }
  std::optional<Verdict> verdict(const Disturbance& d = {}, bool oversubscribed = false) const {
    return judge(compared(), causes(), step_of(point), oversubscribed, d);
  }
  std::string bound_by(const Disturbance& d = {}, bool oversubscribed = false) const {
    return verdict(d, oversubscribed).value().bound_by;
  }
};

double sum(const Causes& c) {
  return c.contention.value + c.straggle.value + c.interference.value + c.wait.value + c.wire.value + c.other.value;
}

TEST(Causes, HaveNoInterferenceOnOneRank) {
  const auto alone = measured(one_rank(10));
  const Three longer{.base = alone, .control = alone, .point = measured(lock_step(12, {11.5}))};
  EXPECT_EQ(longer.causes().interference.value, 0);
  EXPECT_DOUBLE_EQ(longer.causes().other.value, 2);
  EXPECT_EQ(longer.bound_by(), "other");
}

TEST(Causes, EachPartIsWhatItIs) {
  // Ranks cost each other 1 ms, rank 2 is 2 ms slower than the median, the exchange stretches it by 3 ms, is exposed
  // for 9 ms, of which 4 ms are waiting; 0.5 ms are left.
  const Three t{measured(one_rank(10e-3)), measured(lock_step(13e-3, {11e-3, 11e-3, 13e-3, 11e-3})),
                measured(lock_step(25.5e-3, {11e-3, 12e-3, 16e-3, 11e-3}, 9e-3, 4e-3))};
  const auto c = t.causes();
  EXPECT_NEAR(c.lost, 15.5e-3, 1e-12);
  EXPECT_NEAR(c.contention.value, 1e-3, 1e-12);
  EXPECT_NEAR(c.straggle.value, 2e-3, 1e-12);
  EXPECT_NEAR(c.interference.value, 3e-3, 1e-12);
  EXPECT_NEAR(c.wait.value, 4e-3, 1e-12);
  EXPECT_NEAR(c.wire.value, 5e-3, 1e-12);
  EXPECT_NEAR(c.other.value, 0.5e-3, 1e-12);
  EXPECT_NEAR(sum(c), c.lost, 1e-15);
  EXPECT_NEAR(c.exposed.value, 12.5e-3, 1e-12);
  EXPECT_EQ(c.straggler, 2);
  EXPECT_EQ(t.bound_by(), "wire");
}

// Of two ranks the lower median is the faster one: else a rank that is twice as slow would be called contention.
TEST(Causes, ASlowRankOfTwoIsStraggle) {
  for (const bool waits : {false, true}) {  // a blocking call or one's own: the fast rank's waiting is no part
    const Three t{measured(one_rank(10e-3)), measured(lock_step(20e-3, {10e-3, 20e-3})),
                  measured(lock_step(21e-3, {10e-3, 20e-3}, 1e-3, waits ? 0.1e-3 : 0))};
    const auto c = t.causes();
    EXPECT_NEAR(c.straggle.value, 10e-3, 1e-12);
    EXPECT_NEAR(c.contention.value, 0, 1e-12);
    EXPECT_EQ(c.straggler, 1);
    EXPECT_EQ(t.bound_by(), "straggle");
  }
}

// Efficiency is 1 then, and half of the step is lost.
TEST(Causes, ABaselineOnTheSlowRankHidesNoStraggle) {
  const Three t{measured(one_rank(20e-3)), measured(lock_step(20e-3, {20e-3, 10e-3})),
                measured(lock_step(20.5e-3, {20e-3, 10e-3}, 0.5e-3))};
  EXPECT_EQ(t.bound_by(), "straggle");
  const Three usual{measured(one_rank(10.2e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
                    measured(lock_step(10.3e-3, {10e-3, 10e-3}, 0.3e-3))};
  EXPECT_EQ(usual.bound_by(), "compute") << "a little faster than the baseline is noise";
}

TEST(Causes, StretchedKernelsAreInterferenceAndNotWire) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
                measured(lock_step(16e-3, {15e-3, 15e-3}, 1e-3))};
  EXPECT_EQ(t.bound_by(), "interference");
}

TEST(Causes, KernelsThatTheControlDoesNotHaveAreOther) {
  StepBlock control = lock_step(10e-3, {10e-3, 10e-3}), point = lock_step(41e-3, {40e-3, 40e-3}, 1e-3);
  control.kernels = {{"forward", 1, 6e-3}, {"update", 1, 4e-3}};
  // Three more forward passes and an average are the strategy's; the update takes 2 ms longer beside the exchange.
  point.kernels = {{"forward", 4, 24e-3}, {"update", 1, 6e-3}, {"average", 0.5, 10e-3}};
  const Three t{measured(one_rank(10e-3)), measured(control), measured(point)};
  const auto c = t.causes();
  EXPECT_NEAR(c.other.value, 28e-3, 1e-12);
  EXPECT_NEAR(c.interference.value, 2e-3, 1e-12);
  EXPECT_NEAR(sum(c), c.lost, 1e-15);
  EXPECT_EQ(t.bound_by(), "other");
}

TEST(Causes, ContentionIsCalledAfterWhatRanksShare) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(15e-3, {15e-3, 15e-3})),
                measured(lock_step(15e-3, {15e-3, 15e-3}))};
  EXPECT_EQ(t.bound_by(), "memory");
  EXPECT_EQ(t.bound_by({}, true), "cores");
  EXPECT_FALSE(t.causes().straggler);
}

TEST(Causes, StrongScalingDividesTheBase) {
  const Three t{measured(one_rank(40e-3)), measured(lock_step(11e-3, std::vector(4, 11e-3))),
                measured(lock_step(20e-3, std::vector(4, 11e-3), 9e-3))};
  const auto c = t.causes(4);
  EXPECT_NEAR(c.lost, 10e-3, 1e-12);
  EXPECT_NEAR(c.contention.value, 1e-3, 1e-12);
  EXPECT_NEAR(c.speed.value, 0.5, 1e-12);
  EXPECT_NEAR(sum(c), c.lost, 1e-15);
}

// Blocks of one launch may agree to the digit; what another launch would measure is not known as exactly.
TEST(Causes, TheIntervalOfTheSpeedIsAsWideAsThatOfATime) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
                measured(lock_step(9.95e-3, {9.95e-3, 9.95e-3}))};
  const auto ci95 = t.causes().speed.ci95.value();
  EXPECT_NEAR(ci95.low, 10 / 9.95 * 0.99, 1e-12);
  EXPECT_NEAR(ci95.high, 10 / 9.95 * 1.01, 1e-12);
}

TEST(Causes, WithoutLockStepTheWorkersMeanStandsForTheSlowest) {
  StepBlock point{.step = 16e-3,
                  .parts = {.compute = 13e-3, .exposed = 9, .wait = 3e-3},
                  .compute = {12e-3, 14e-3, 0},
                  .step_by_rank = {16e-3, 16e-3, 0}};
  const Three t{measured(one_rank(10e-3)), measured(lock_step(12e-3, {10e-3, 12e-3, 500e-3})), measured(point)};
  const auto c = t.causes(1, false);
  EXPECT_NEAR(c.contention.value, 0, 1e-12) << "the rank that serves is no worker";
  EXPECT_NEAR(c.straggle.value, 1e-3, 1e-12);
  EXPECT_NEAR(c.interference.value, 2e-3, 1e-12);
  EXPECT_EQ(c.wire.value, 0) << "who stands still for messages cannot tell a wire from a busy server";
  EXPECT_NEAR(sum(c), c.lost, 1e-15);
  Three copying = t;
  for (auto& b : copying.point.blocks) b.step += 2e-3, b.parts.handling = 2e-3;
  EXPECT_NEAR(copying.causes(1, false).wire.value, 2e-3, 1e-12);
  EXPECT_NEAR(copying.causes(1, false).other.value, 0, 1e-12);
}

// The point's own times are means over all steps, of which a fast worker makes more.
TEST(Causes, WithoutLockStepAWorkerCountsAsOftenAsItMakesSteps) {
  const double mean = 2 / (1 / 10e-3 + 1 / 80e-3);  // no worker waits: this is the mean step, too
  StepBlock point{.step = mean, .parts = {.compute = mean}, .compute = {10e-3, 80e-3}, .step_by_rank = {10e-3, 80e-3}};
  const Three t{measured(one_rank(10e-3)), measured(lock_step(80e-3, {10e-3, 80e-3})), measured(point)};
  const auto c = t.causes(1, false);
  EXPECT_NEAR(c.interference.value, 0, 1e-12);
  EXPECT_NEAR(c.straggle.value, mean - 10e-3, 1e-12);
  EXPECT_NEAR(sum(c), c.lost, 1e-15);
}

// Medians of noisy parts do not add up: what is missing is no update and no bookkeeping, which hardly vary.
TEST(Causes, NoiseOfKernelsDoesNotBecomeOther) {
  Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
          measured(lock_step(11.2e-3, {10e-3, 10e-3}, 1e-3))};
  for (std::size_t i = 0; i < blocks; ++i) {
    const double base = i % 3 == 0 ? 3e-3 : 0, control = i % 4 == 0 ? 4e-3 : 0;
    auto &b = t.base.blocks[i], &c = t.control.blocks[i];
    b.step += base, b.parts.compute += base, b.compute[0] += base;
    c.step += control, c.parts.compute += control;
    for (double& each : c.compute) each += control;
  }
  const auto c = t.causes();
  EXPECT_NEAR(sum(c), c.lost, 1e-15);
  EXPECT_NEAR(c.other.value, 0.2e-3, 1e-12);
  EXPECT_NEAR(c.wire.value, 1e-3, 1e-12);
}

TEST(Verdict, LittleLostIsCompute) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
                measured(lock_step(10.4e-3, {10e-3, 10e-3}, 0.4e-3))};
  EXPECT_EQ(t.bound_by(), "compute");
  EXPECT_EQ(t.verdict()->probability, 1);
}

// 4 % with an interval of 8 % to both sides: nobody can say that anything was lost.
TEST(Verdict, ALossWithinTheNoiseIsNothingLost) {
  Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
          measured(lock_step(10.4e-3, {10e-3, 10e-3}, 0.4e-3))};
  vary(t.point, 0.8e-3);
  const auto ci95 = t.causes().speed.ci95.value();
  ASSERT_LT(ci95.low, 0.9);
  ASSERT_GT(ci95.high, 1.03);
  EXPECT_EQ(t.bound_by(), "compute");
  EXPECT_GT(t.verdict()->noise_s, 0.7e-3);
  for (auto& b : t.point.blocks) b.step += 3e-3, b.parts.exposed += 3e-3;
  EXPECT_EQ(t.bound_by(), "wire") << "3 ms more are beyond it";
}

TEST(Verdict, AnIntervalThatHidesALargeLossIsNoProofOfNone) {
  Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
          measured(lock_step(12e-3, {10e-3, 10e-3}, 2e-3), 30e-3)};
  EXPECT_DOUBLE_EQ(t.verdict()->noise_s, 0.15 * step_of(t.point));
  EXPECT_NE(t.bound_by(), "compute");
}

TEST(Verdict, APartFarAheadOfTheNextIsCertain) {
  // 1.98 of 2.53 ms lost are wire, the next part is 0.27; kernels vary by 4 %.
  Three t{measured(one_rank(7e-3)), measured(lock_step(7.27e-3, {7.1e-3, 7.27e-3})),
          measured(lock_step(9.53e-3, {7.1e-3, 7.4e-3}, 1.98e-3))};
  for (std::size_t i = 0; i < blocks; ++i) {
    t.control.blocks[i].compute[0] += (i % 3 == 0 ? 0.3e-3 : 0);
    t.point.blocks[i].parts.compute += (i % 4 == 0 ? 0.3e-3 : 0);
    t.point.blocks[i].step += (i % 4 == 0 ? 0.3e-3 : 0);
  }
  EXPECT_EQ(t.bound_by(), "wire");
  EXPECT_GT(t.verdict()->probability, 0.95);
  const Disturbance busy{.base = 0.1, .control = 0.1, .point = 0.1};
  EXPECT_EQ(t.bound_by(busy), "wire") << "a tenth of each time explains less";
}

// A rank that is more than twice as slow, on a machine that kept threads from running for a third of the time.
TEST(Verdict, ADisturbedMachineDoesNotHideASlowRank) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(22.5e-3, {10.2e-3, 10.4e-3, 22.4e-3})),
                measured(lock_step(27e-3, {10.3e-3, 10.5e-3, 24.5e-3}, 2e-3))};
  ASSERT_NEAR(t.causes().straggle.value, 12e-3, 1e-9);
  EXPECT_EQ(t.causes().straggler, 2);
  EXPECT_EQ(t.bound_by({.base = 0.33, .control = 0.33, .point = 0.33}), "straggle");
}

TEST(Verdict, WhatTheMachineMayExplainIsUndecidedAndNamesTheCandidates) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(12e-3, {12e-3, 12e-3})),
                measured(lock_step(13e-3, {12e-3, 12e-3}, 1e-3))};
  EXPECT_EQ(t.bound_by(), "memory");
  const auto v = t.verdict({.control = 0.2, .point = 0.2}).value();
  EXPECT_EQ(v.bound_by, "undecided") << "of 2 ms contention up to 2.4 may be the machine's";
  ASSERT_GE(v.candidates.size(), 2u);
  EXPECT_EQ(v.candidates[0].probability, v.probability);
  EXPECT_GE(v.candidates[0].probability, v.candidates[1].probability);
  EXPECT_EQ(to_text({{"wire", 0.55}, {"straggle", 0.404}}), "wire 55 %, straggle 40 %");
}

TEST(Verdict, AShownLossThatTheMachineExplainsIsNotNothing) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(11e-3, {11e-3, 11e-3})),
                measured(lock_step(11e-3, {11e-3, 11e-3}))};
  EXPECT_EQ(t.bound_by(), "memory");
  const auto v = t.verdict({.control = 0.5, .point = 0.5}).value();
  EXPECT_EQ(v.candidates[0].bound_by, "compute");
  EXPECT_GT(v.probability, 2.0 / 3);
  EXPECT_EQ(v.bound_by, "undecided");
}

TEST(Verdict, ACauseThatIsNotTheLargestPartIsUndecided) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(11.36e-3, {11.36e-3, 11.36e-3})),
                measured(lock_step(12.6e-3, {11.36e-3, 11.36e-3}, 1.24e-3))};
  EXPECT_EQ(t.bound_by(), "memory");
  const auto v = t.verdict({.control = 0.5, .point = 0.5}).value();  // explains all of contention, and half of wire
  EXPECT_EQ(v.candidates[0].bound_by, "wire");
  EXPECT_GT(v.probability, 2.0 / 3);
  EXPECT_EQ(v.bound_by, "undecided") << "1.36 ms of contention are more than 1.24 ms of wire";
}

TEST(Verdict, APartOfTheWorkThatFitsItsCachesIsNoSlowBaseline) {
  const Three t{measured(one_rank(20e-3)), measured(lock_step(8e-3, {8e-3, 8e-3})),
                measured(lock_step(10e-3, {8e-3, 8e-3}, 2e-3))};
  EXPECT_EQ(judge(t.compared(2), t.causes(2), 10e-3, false, {})->bound_by, "compute") << "nothing was lost";
}

// Kernels that take no longer than alone hold nothing of the machine's, whatever kept threads waiting.
TEST(Verdict, TheMachineIsNoReasonWhereNothingTookLonger) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
                measured(lock_step(14e-3, {10e-3, 10e-3}, 4e-3))};
  EXPECT_EQ(t.bound_by({.control = 0.5}), "wire");
}

// A control is its own control: no draw of the machine's may turn one time into two that differ.
TEST(Verdict, APartThatAPointCannotHaveIsNoCandidate) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(13e-3, {11e-3, 13e-3})), measured(one_rank(11e-3))};
  const auto judged = [&](const Measurement& control, const Measurement& point) {
    const auto b = pair_blocks(t.base, control, point);
    const auto c = find_causes(b, step_of(point), step_of(t.base), step_of(control));
    const auto v = judge(b, c, step_of(point), false, {.base = 0.3, .control = 0.3, .point = 0.3}).value();
    std::vector<std::string> out;
    for (const auto& answer : v.candidates) out.push_back(answer.bound_by);
    return out;
  };
  EXPECT_THAT(judged(t.control, t.control), UnorderedElementsAre("straggle", "memory", "compute"));
  EXPECT_THAT(judged(t.base, t.point), UnorderedElementsAre("other", "compute"));
  EXPECT_THAT(judged(t.base, t.base), ElementsAre("compute"));
}

TEST(Verdict, TwoPartsAlikeAreUndecided) {
  Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
          measured(lock_step(14.15e-3, {12.1e-3, 12.1e-3}, 2.05e-3))};
  for (std::size_t i = 0; i < blocks; i += 2) {
    t.point.blocks[i].parts.compute -= 0.4e-3;
    t.point.blocks[i].step -= 0.4e-3;
  }
  const auto v = t.verdict().value();
  EXPECT_EQ(v.bound_by, "undecided");
  EXPECT_EQ(v.candidates.size(), 2u);
}

TEST(Verdict, FewerThanSixBlocksInTurnHaveNoIntervalAndNoVerdict) {
  Three t{measured(one_rank(25e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
          measured(lock_step(10e-3, {10e-3, 10e-3}))};
  t.base.blocks.resize(6);
  EXPECT_TRUE(t.verdict());
  t.base.blocks.resize(5);
  EXPECT_FALSE(t.causes().speed.ci95);
  EXPECT_FALSE(t.causes().wire.ci95);
  EXPECT_FALSE(t.verdict());
}

TEST(Verdict, WhatClocksCannotTellApartIsWire) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
                measured(lock_step(14e-3, {10e-3, 10e-3}, 4e-3, 3e-3))};
  auto b = t.compared();
  EXPECT_EQ(times_of(b, 0).parts()[static_cast<std::size_t>(Cause::wait)], 3e-3);
  b.wait_known = false;
  const auto c = find_causes(b, 14e-3, 10e-3, 10e-3);
  EXPECT_EQ(c.wait.value, 0);
  EXPECT_NEAR(c.wire.value, 4e-3, 1e-12);
  EXPECT_EQ(judge(b, c, 14e-3, false, {})->bound_by, "wire");
}

TEST(PairedBlocks, AreThoseOfTheSameRound) {
  Three t{measured(one_rank(1)), measured(one_rank(2)), measured(one_rank(3))};
  t.control.blocks.erase(t.control.blocks.begin() + 2);
  const auto b = pair_blocks(t.base, t.control, t.point);
  ASSERT_EQ(b.point.size(), blocks - 1);
  for (std::size_t i = 0; i < b.point.size(); ++i) {
    EXPECT_EQ(b.point[i]->round, b.base[i]->round);
    EXPECT_EQ(b.point[i]->round, b.control[i]->round);
    EXPECT_NE(b.point[i]->round, 2u);
  }
}

}  // namespace
}  // namespace gradmeter::bench
