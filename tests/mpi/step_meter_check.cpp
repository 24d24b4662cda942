// Whose figures a block has, on real ranks: steps are made up, so that each rank's are known.
#include "bench/scale/measure.hpp"
#include "runtime/mpi/session.hpp"

#include <gtest/gtest.h>

#include "runtime/process/signals.hpp"

namespace gradmeter::bench {
namespace {

/// Rank r computes for 10 + r ms; its call begins 4 ms before the end of that and ends 6 + r ms after it.
dataparallel::StepRecord made_up_step(int rank) {
  const double begin = runtime::host_clock(), computed = begin + 1e-3 * (10 + rank);
  dataparallel::StepRecord r{.step = {begin, computed + 20e-3}, .computations = {}, .calls = {}};
  r.computations.push_back({.label = "forward", .when = {begin, computed}});
  dataparallel::CallRecord call{.label = "all_reduce", .completion = {}};
  call.completion.posted = computed - 5e-3;
  call.completion.started = computed - 4e-3;
  call.completion.finished = computed + 1e-3 * (6 + rank);
  r.calls.push_back(call);
  return r;
}

TEST(StepMeterCheck, CallsAreThoseOfTheRankThatTheRowIsOf) {
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  Session session{runtime::MpiSession::world(), {signals, watchdog}, core::Seconds{60}, "step_meter_check"};
  const auto& world = session.world();
  runtime::SharedClock clock(world);
  const int longest = world.size() - 1;
  dataparallel::StepRecord step;
  MeasureOptions options;
  options.rule.min_blocks = 2;
  options.warmup_budget = core::Seconds{0.1};
  StepMeter meter(session, world, clock, options,
                  {.prepare = [] {}, .step = [&]() -> const auto& { return step = made_up_step(world.rank());
}
, .per_call = true
}  // namespace
);
meter.warm_up();
for (int i = 0; i < 2; ++i) (void)meter.round();
ASSERT_FALSE(meter.result().blocks.empty());
for (const StepBlock& b : meter.result().blocks) {
  ASSERT_EQ(b.longest, longest);
  ASSERT_EQ(b.calls.size(), 1U);
  EXPECT_NEAR(b.calls[0].posted, 1e-3 * (5 + longest), 1e-6);
  EXPECT_NEAR(b.calls[0].finished, 1e-3 * (16 + 2 * longest), 1e-6);
  EXPECT_NEAR(b.calls[0].exposed, 1e-3 * (6 + longest), 1e-6);
  EXPECT_NEAR(b.calls[0].exposed, b.parts.exposed, 1e-9) << "as in the row";
}
}  // namespace gradmeter::bench

}  // namespace
}  // namespace gradmeter::bench
