// SPDX-License-Identifier: Apache-2.0
// Whose figures a block has, on real ranks: steps are made up, so that each rank's are known.
#include "bench/scale/measure.hpp"
#include "runtime/mpi/session.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "runtime/process/signals.hpp"

namespace gradmeter::bench {
namespace {

/// Rank r computes for 10 + r ms; its call begins 4 ms before the end of that and ends 6 + r ms after it. Steps follow
/// one another, although they take no time to be made up.
dataparallel::StepRecord made_up_step(int rank) {
  static double last_end = 0;
  const double begin = std::max(runtime::host_clock(), last_end), computed = begin + 1e-3 * (10 + rank);
  last_end = computed + 20e-3;
  dataparallel::StepRecord r{.step = {begin, computed + 20e-3}, .computations = {}, .calls = {}};
  r.computations.push_back({.label = "forward", .when = {begin, computed}});
  dataparallel::CallRecord call{.label = "all_reduce", .completion = {}};
  call.completion.posted = computed - 5e-3;
  call.completion.started = computed - 4e-3;
  call.completion.finished = computed + 1e-3 * (6 + rank);
  r.calls.push_back(call);
  return r;
}

/// What a source's steps come to: two kept blocks.
Measurement measured(const runtime::Communicator& world, Session& session, StepMeter::Source source) {
  runtime::SharedClock clock(world);
  MeasureOptions options;
  options.rule.min_blocks = 2;
  options.warmup_budget = core::Seconds{0.1};
  StepMeter meter(session, world, clock, options, std::move(source));
  meter.warm_up();
  for (int i = 0; i < 2; ++i) (void)meter.round();
  return meter.result();
}

class StepMeterCheck : public testing::Test {
 protected:
  runtime::SignalWatch signals_;
  runtime::Watchdog watchdog_;
  Session session_{runtime::MpiSession::world(), {signals_, watchdog_}, core::Seconds{60}, "step_meter_check"};
  const runtime::Communicator& world_ = session_.world();
  StepMeter::Source of_made_up_steps() {
    return {.prepare = [] {}, .step = {}, .take_records = [this] { return std::exchange(made_, {}); }};
  }
  std::vector<dataparallel::StepRecord> made_;
};

TEST_F(StepMeterCheck, CallsAreThoseOfTheRankThatTheRowIsOf) {
  const int longest_rank = world_.size() - 1;
  StepMeter::Source source = of_made_up_steps();
  source.step = [this] { made_.push_back(made_up_step(world_.rank())); };
  source.per_call = true;
  const Measurement m = measured(world_, session_, source);
  ASSERT_FALSE(m.blocks.empty());
  for (const StepBlock& b : m.blocks) {
    ASSERT_EQ(b.longest_rank, longest_rank);
    ASSERT_EQ(b.calls.size(), 1U);
    EXPECT_NEAR(b.calls[0].posted, 1e-3 * (5 + longest_rank), 1e-6);
    EXPECT_NEAR(b.calls[0].finished, 1e-3 * (16 + 2 * longest_rank), 1e-6);
    EXPECT_NEAR(b.calls[0].exposed, 1e-3 * (6 + longest_rank), 1e-6);
    EXPECT_NEAR(b.calls[0].exposed, b.parts.exposed, 1e-9) << "as in the row";
  }
}

/// A step of 200 ms waits 160 of them for what the one before it has begun, and between blocks nothing is under way.
TEST_F(StepMeterCheck, StepsThatCountHaveOneBeforeThemToWaitFor) {
  bool begun = false;
  StepMeter::Source source = of_made_up_steps();
  source.step = [&] {
    const double begin = runtime::host_clock();
    made_.push_back(
        {.step = {begin, begin + (std::exchange(begun, true) ? 0.2 : 0.04)}, .computations = {}, .calls = {}});
  };
  source.end_block = [&] { begun = false; };
  source.lock_step = false;
  const Measurement m = measured(world_, session_, source);
  ASSERT_FALSE(m.blocks.empty());
  for (const StepBlock& b : m.blocks) EXPECT_NEAR(b.step, 0.2, 1e-6);
}

}  // namespace
}  // namespace gradmeter::bench
