// The causes of lost time, on blocks made by hand.
#include "bench/scale/causes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace gradmeter::bench {
namespace {

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
  b.longest = static_cast<int>(std::max_element(b.compute.begin(), b.compute.end()) - b.compute.begin());
  b.parts.compute = b.compute[static_cast<std::size_t>(b.longest)];
  return b;
}

struct Three {
  Measurement base, control, point;
  Causes causes(double ideal = 1, bool in_lock_step = true) const {
    auto b = pair_blocks(base, control, point);
    b.ideal = ideal;
    b.lock_step = in_lock_step;
    return find_causes(b, point.blocks.front().step, base.blocks.front().step, control.blocks.front().step);
  }
};

double sum(const Causes& c) {
  return c.contention.value + c.straggle.value + c.interference.value + c.wait.value + c.wire.value + c.other.value;
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
  EXPECT_EQ(bound_by(c, 25.5e-3, false, 0), "wire");
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
    EXPECT_EQ(bound_by(c, 21e-3, false, 0), "straggle");
  }
}

TEST(Causes, StretchedKernelsAreInterferenceAndNotWire) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
                measured(lock_step(16e-3, {15e-3, 15e-3}, 1e-3))};
  EXPECT_EQ(bound_by(t.causes(), 16e-3, false, 0), "interference");
}

TEST(Causes, ContentionIsCalledAfterWhatRanksShare) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(15e-3, {15e-3, 15e-3})),
                measured(lock_step(15e-3, {15e-3, 15e-3}))};
  EXPECT_EQ(bound_by(t.causes(), 15e-3, false, 0), "memory");
  EXPECT_EQ(bound_by(t.causes(), 15e-3, true, 0), "cores");
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

TEST(Causes, WithoutLockStepTheWorkersMeanStandsForTheSlowest) {
  StepBlock point{.step = 16e-3, .parts = {.compute = 13e-3, .exposed = 9, .wait = 3e-3}, .compute = {12e-3, 14e-3, 0}};
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

TEST(Causes, LittleLostIsCompute) {
  const Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
                measured(lock_step(10.4e-3, {10e-3, 10e-3}, 0.4e-3))};
  EXPECT_EQ(bound_by(t.causes(), 10.4e-3, false, 0), "compute");
  EXPECT_EQ(bound_by(t.causes(), 10.4e-3, false, 0.2), "compute");
}

TEST(Causes, NoVerdictOnWhatMayBeNoise) {
  const Three quiet{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
                    measured(lock_step(12e-3, {10e-3, 10e-3}, 2e-3))};
  EXPECT_EQ(bound_by(quiet.causes(), 12e-3, false, 0), "wire");
  EXPECT_EQ(bound_by(quiet.causes(), 12e-3, false, 0.2), "undecided")
      << "2.4 ms, more than was lost, may be the machine";
  EXPECT_EQ(bound_by(quiet.causes(), 12e-3, false, 0.1), "wire")
      << "1.2 ms explain neither the loss nor its largest part";
  Three noisy = quiet;
  noisy.point = measured(lock_step(12e-3, {10e-3, 10e-3}, 2e-3), 30e-3);
  EXPECT_EQ(bound_by(noisy.causes(), 12e-3, false, 0), "undecided") << "the loss is inside the interval";
}

TEST(Causes, TwoPartsThatOverlapAreUndecided) {
  Three t{measured(one_rank(10e-3)), measured(lock_step(10e-3, {10e-3, 10e-3})),
          measured(lock_step(14e-3, {12e-3, 12e-3}, 2.1e-3))};
  for (std::size_t i = 0; i < blocks; i += 2) t.point.blocks[i].parts.compute = 12.5e-3;
  EXPECT_EQ(bound_by(t.causes(), 14e-3, false, 0), "undecided");
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
