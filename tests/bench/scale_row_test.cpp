// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/row.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "model/data/dataset.hpp"
#include "runtime/process/signals.hpp"
#include "runtime/process/watchdog.hpp"
#include "runtime/threads/thread_group.hpp"

namespace gradmeter::bench {
namespace {

using core::Metric;
using core::Point;

/// A point whose every block took the same.
struct Timed {
  Point row;
  Measurement measured;
  Reference reference() const { return {row, measured}; }
};

Timed timed(int ranks, double seconds, double samples_per_s, double compute) {
  Timed t;
  t.row.metrics[Metric::time_s] = seconds;
  t.row.metrics[Metric::samples_per_s] = samples_per_s;
  t.row.metrics[Metric::compute_s] = compute;
  t.row.factors[core::Factor::ranks] = std::int64_t{ranks};
  t.row.factors[core::Factor::batch_per_rank] = std::int64_t{64};
  for (std::size_t i = 0; i < 8; ++i) {
    t.measured.blocks.push_back({.round = i,
                                 .step = seconds,
                                 .parts = {.compute = compute, .exposed = seconds - compute},
                                 .compute = std::vector(static_cast<std::size_t>(ranks), compute),
                                 .step_by_rank = std::vector(static_cast<std::size_t>(ranks), seconds)});
  }
  return t;
}

ScalePoint point(int ranks, std::optional<Scaling> scaling, const char* strategy = "sync") {
  ScalePoint p;
  p.ranks = ranks;
  p.scaling = scaling;
  p.strategy = dataparallel::find_strategy(strategy);
  return p;
}

Point compared(const ScalePoint& p, const Timed& base, const Timed& control, const Timed& t) {
  Point row = t.row;
  const Reference b = base.reference(), c = control.reference();
  compare_row(p, {.base = &b, .control = &c}, t.measured, row);
  return row;
}

TEST(CompareRow, WeakEfficiencyIsTheRateOfARankAgainstOneRanks) {
  const Point row = compared(point(4, Scaling::weak), timed(1, 0.010, 6400, 0.010),
                             timed(4, 0.011, 4 * 64 / 0.011, 0.011), timed(4, 0.0125, 4 * 64 / 0.0125, 0.011));
  const auto& m = row.metrics;
  EXPECT_NEAR(m.number(Metric::efficiency), 0.8, 1e-12);
  EXPECT_NEAR(m.number(Metric::efficiency_ci95_low), 0.99 * 0.8, 1e-12) << "at least 1 % to each side";
  EXPECT_NEAR(m.number(Metric::efficiency_ci95_high), 1.01 * 0.8, 1e-12);
  EXPECT_NEAR(m.number(Metric::exposed_s), 0.0015, 1e-12);
  EXPECT_NEAR(m.number(Metric::interference_s), 0.0, 1e-12);
  EXPECT_NEAR(m.number(Metric::contention_s), 0.001, 1e-12);
  EXPECT_EQ(m.number(Metric::baseline_time_s), 0.010);
  EXPECT_EQ(core::to_text(m[Metric::baseline_batch]), "64");
  EXPECT_EQ(core::to_text(m[Metric::bound_by]), "wire");
  EXPECT_EQ(row.status, core::Status::ok);
}

TEST(CompareRow, OnlyWhatIsInTheFiguresMakesTheCauseUndecided) {
  // 1.9 of 2.5 ms lost are contention, which may be what kept the control's threads from running.
  const auto cause = [](const std::function<void(core::Metrics&)>& state) {
    Timed control = timed(4, 0.0119, 4 * 64 / 0.0119, 0.0119);
    control.row.metrics[Metric::blocks] = std::int64_t{10};
    control.row.metrics[Metric::steadiness] = 0.7;
    state(control.row.metrics);
    const Point row = compared(point(4, Scaling::weak), timed(1, 0.010, 6400, 0.010), control,
                               timed(4, 0.0125, 4 * 64 / 0.0125, 0.0119));
    return core::to_text(row.metrics[Metric::bound_by]);
  };
  EXPECT_EQ(cause([](auto&) {}), "memory");
  EXPECT_EQ(cause([](auto& m) { m[Metric::disturbed_blocks] = std::int64_t{6}; }), "undecided");
  EXPECT_EQ(cause([](auto& m) { m[Metric::left_out_blocks] = std::int64_t{20}; }), "memory");
  EXPECT_EQ(cause([](auto& m) { m[Metric::noise_run_delay] = 0.3; }), "undecided");
  EXPECT_EQ(cause([](auto& m) { m[Metric::noise_steal] = 0.3; }), "undecided");
  EXPECT_EQ(cause([](auto& m) { m[Metric::noise_run_delay] = 0.3, m[Metric::oversubscribed] = true; }), "memory");
}

TEST(CompareRow, TheVerdictHasItsProbabilityAndTheCandidates) {
  const Point row = compared(point(4, Scaling::weak), timed(1, 0.010, 6400, 0.010),
                             timed(4, 0.011, 4 * 64 / 0.011, 0.011), timed(4, 0.0125, 4 * 64 / 0.0125, 0.011));
  EXPECT_EQ(row.metrics.number(Metric::bound_by_probability), 1);
  EXPECT_EQ(core::to_text(row.metrics[Metric::bound_by_candidates]), "wire 100 %");
  Timed base = timed(1, 0.010, 6400, 0.010);
  base.row.metrics[Metric::noise_run_delay] = 0.5;
  const Point itself = compared(point(1, {}, "independent"), base, base, base);
  EXPECT_EQ(core::to_text(itself.metrics[Metric::bound_by]), "compute");
  EXPECT_TRUE(core::is_null(itself.metrics[Metric::bound_by_probability])) << "by definition, not by measurement";
}

TEST(CompareRow, SaysThatTheBaselineRanOnASlowRank) {
  const Point row = compared(point(4, Scaling::weak), timed(1, 0.020, 3200, 0.020),
                             timed(4, 0.020, 4 * 64 / 0.020, 0.010), timed(4, 0.0205, 4 * 64 / 0.0205, 0.010));
  EXPECT_THAT(row.reason, ::testing::HasSubstr("2.00 times as long as the median one"));
}

/// Four ranks, two of which share each replica of the model and its batch.
ScalePoint on_mesh() {
  ScalePoint p = point(4, Scaling::weak);
  p.mesh = dataparallel::parse_mesh("tensor=2");
  return p;
}

TEST(CompareRow, RanksOfAReplicaShareTheWorkOfTheBaseline) {
  const Point row = compared(on_mesh(), timed(1, 0.010, 6400, 0.010), timed(4, 0.006, 2 * 64 / 0.006, 0.005),
                             timed(4, 0.008, 2 * 64 / 0.008, 0.005));
  const auto& m = row.metrics;
  EXPECT_NEAR(m.number(Metric::efficiency), 0.625, 1e-12);
  EXPECT_NEAR(m.number(Metric::contention_s), 0, 1e-12);
  EXPECT_NEAR(m.number(Metric::wire_s), 0.003, 1e-12) << "the ideal step is half of the baseline's";
  EXPECT_EQ(core::to_text(m[Metric::bound_by]), "wire");
  EXPECT_EQ(row.reason, "");
  const Point cached = compared(on_mesh(), timed(1, 0.010, 6400, 0.010), timed(4, 0.006, 2 * 64 / 0.006, 0.003),
                                timed(4, 0.008, 2 * 64 / 0.008, 0.003));
  EXPECT_EQ(cached.reason, "") << "a part of the model may be faster than half of it, so the baseline was not slow";
}

TEST(CompareRow, AMeshMayBeFasterThanOneRank) {
  Timed fast = timed(4, 0.004, 2 * 64 / 0.004, 0.004);
  fast.row.reason = "bf16 is multiplied in tiles";
  const Timed base = timed(1, 0.010, 6400, 0.010);
  const Point row = compared(on_mesh(), base, fast, fast);
  EXPECT_EQ(row.status, core::Status::ok);
  EXPECT_EQ(
      row.reason,
      "bf16 is multiplied in tiles; above 100 %: a rank's part of the model fits its caches better than the whole");
  const Point weak = compared(point(4, Scaling::weak), base, fast, fast);
  EXPECT_EQ(weak.status, core::Status::mistrusted) << "as ranks with the whole model are";
  EXPECT_THAT(weak.reason, ::testing::HasSubstr("in a worse state; bf16 is multiplied in tiles"));
}

TEST(FillRow, KeepsTheFirstReason) {
  const auto data = model::make_data({.train_samples = 16, .validation_samples = 1});
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  runtime::run_thread_ranks(1, [&](const runtime::Communicator& world) {
    Session session(world, {signals, watchdog}, core::Seconds{60}, "test");
    ScalePoint p = point(1, {}, "independent");
    p.model = "mlp:784-4-10", p.batch_per_rank = 4, p.batch_global = 4;
    Training training(session, world, data, p);
    const TrainingTotals totals = training.finish();
    Measurement measured;
    const auto filled = [&](core::Status status) {
      Point row;
      row.status = status, row.reason = "a sum is wrong";
      fill_row({.point = p,
                .training = training,
                .measurement = measured,
                .bound = {},
                .machine_noise = {},
                .totals = totals,
                .steps = {},
                .oversubscribed = false},
               row);
      return row;
    };
    EXPECT_EQ(filled(core::Status::ok).status, core::Status::failed) << "no block met its window";
    EXPECT_EQ(filled(core::Status::wrong).status, core::Status::wrong);
    EXPECT_EQ(filled(core::Status::wrong).reason, "a sum is wrong");
    measured = timed(1, 0.01, 400, 0.01).measured;
    const double times[] = {0.01};
    measured.times.add(times);
    measured.bytes_right = false;
    p.ranks = 2, p.strategy = dataparallel::find_strategy("sync");  // one that sends bytes
    EXPECT_EQ(filled(core::Status::ok).status, core::Status::wrong);
    EXPECT_EQ(filled(core::Status::wrong).reason, "a sum is wrong");
  });
}

TEST(CompareRow, WithoutAnIntervalNothingIsConcluded) {
  Timed base = timed(1, 0.0256, 2500, 0.0256);
  const Timed control = timed(2, 0.010, 12800, 0.010), t = timed(2, 0.010, 12800, 0.010);
  base.measured.blocks.resize(core::fewest_blocks - 1);
  const Point gain = compared(point(2, Scaling::weak), base, control, t);
  EXPECT_NEAR(gain.metrics.number(Metric::efficiency), 2.56, 1e-12);
  EXPECT_EQ(gain.status, core::Status::mistrusted) << "no rank is two and a half times as fast as one alone";
  for (const Metric m : {Metric::efficiency_ci95_low, Metric::efficiency_ci95_high, Metric::exposed_ci95_low,
                         Metric::bound_by, Metric::bound_by_probability, Metric::bound_by_candidates}) {
    EXPECT_TRUE(core::is_null(gain.metrics[m])) << core::name(m);
  }
  EXPECT_NE(gain.reason.find("256 %"), std::string::npos) << gain.reason;
  EXPECT_NE(gain.reason.find("5 blocks"), std::string::npos) << gain.reason;
  Timed likely = base;
  likely.row.metrics[Metric::samples_per_s] = 6500.0;
  const Point loss = compared(point(2, Scaling::weak), likely, control, t);
  EXPECT_EQ(loss.status, core::Status::ok);
  EXPECT_TRUE(core::is_null(loss.metrics[Metric::bound_by]));
  EXPECT_EQ(loss.reason.find("5 blocks"), 0u) << loss.reason;
}

TEST(CompareRow, StrongEfficiencyComparesWithAFairShareOfTheBaseline) {
  const Point row = compared(point(4, Scaling::strong), timed(1, 0.040, 6400, 0.040), timed(4, 0.011, 23000, 0.011),
                             timed(4, 0.020, 256 / 0.020, 0.011));
  EXPECT_NEAR(row.metrics.number(Metric::efficiency), 0.5, 1e-12);
}

TEST(CompareRow, RanksThatOnlyServeCountAsRanks) {
  // One of four serves: three workers' samples, a quarter less than four would have at the same speed.
  const Point row = compared(point(4, Scaling::weak, "ps-sync:servers=1"), timed(1, 0.010, 6400, 0.010),
                             timed(4, 0.010, 25600, 0.010), timed(4, 0.010, 3 * 64 / 0.010, 0.010));
  EXPECT_NEAR(row.metrics.number(Metric::efficiency), 0.75, 1e-12);
  EXPECT_NEAR(row.metrics.number(Metric::efficiency_ci95_low), 0.99 * 0.75, 1e-12);
}

TEST(CompareRow, WithoutABaselineThereIsNoEfficiency) {
  const Timed t = timed(2, 0.02, 100, 0.02);
  Point row = t.row;
  compare_row(point(2, Scaling::weak), {}, t.measured, row);
  EXPECT_TRUE(core::is_null(row.metrics[Metric::efficiency]));
  EXPECT_TRUE(core::is_null(row.metrics[Metric::exposed_s]));
}

TEST(CompareRow, OneRankHasNobodyToBeExposedTo) {
  const Point row =
      compared(point(1, {}), timed(1, 0.010, 6400, 0.010), timed(1, 0.010, 6400, 0.010), timed(1, 0.010, 6400, 0.010));
  EXPECT_TRUE(core::is_null(row.metrics[Metric::exposed_s]));
  EXPECT_TRUE(core::is_null(row.metrics[Metric::wire_s]));
  EXPECT_NEAR(row.metrics.number(Metric::efficiency), 1, 1e-12);
}

// No rank can be faster than one that has the machine to itself: such a row contradicts itself.
TEST(CompareRow, FasterThanOneRankIsMistrusted) {
  const Timed base = timed(1, 0.010, 6400, 0.010), control = timed(2, 0.010, 12800, 0.010),
              fast = timed(2, 0.008, 16000, 0.008);
  EXPECT_EQ(compared(point(2, Scaling::weak), base, control, fast).status, core::Status::mistrusted);
  EXPECT_EQ(compared(point(2, Scaling::weak, "es"), base, control, fast).status, core::Status::ok) << "other work";
  Timed half = fast;
  for (auto& b : half.measured.blocks) b.step = 0.004;
  half.row.metrics[Metric::time_s] = 0.004;
  half.row.metrics[Metric::samples_per_s] = 16000.0;
  const Point strong = compared(point(2, Scaling::strong), base, control, half);
  EXPECT_EQ(strong.status, core::Status::ok);
  EXPECT_NE(strong.reason, "") << "caches may: the row says so";
}

TEST(CompareRow, ItsOwnOneRankRunIsSpeedUpAndNoEfficiency) {
  const Timed alone = timed(1, 0.020, 3200, 0.010), t = timed(2, 0.020, 6400, 0.010);
  Point row = t.row;
  const Reference r = alone.reference();
  compare_row(point(2, Scaling::weak), {.one_rank = &r}, t.measured, row);
  EXPECT_NEAR(row.metrics.number(Metric::self_speedup), 2, 1e-12);
  EXPECT_TRUE(core::is_null(row.metrics[Metric::efficiency]));
}

}  // namespace
}  // namespace gradmeter::bench
