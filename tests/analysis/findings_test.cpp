// SPDX-License-Identifier: Apache-2.0
#include "analysis/findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "analysis/launches.hpp"

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

core::Summary timed(double seconds, double half = 0.01) {
  core::Summary time;
  time.median = seconds;
  time.ci95_low = seconds * (1 - half);
  time.ci95_high = seconds * (1 + half);
  return time;
}

/// Eight ranks; the efficiency's interval is ±`half`.
Point step(std::int64_t batch, double efficiency, double half = 0.01) {
  Point p;
  p.experiment = "scale";
  p.factors[Factor::model] = std::string("resnet50");
  p.factors[Factor::precision] = std::string("fp32");
  p.factors[Factor::ranks] = std::int64_t{8};
  p.factors[Factor::batch_per_rank] = batch;
  p.factors[Factor::strategy] = std::string("sync");
  p.factors[Factor::codec] = std::string("none");
  p.metrics[Metric::time_s] = timed(1 / efficiency);
  p.metrics[Metric::baseline_time_s] = 1.0;
  p.metrics[Metric::efficiency] = efficiency;
  p.metrics[Metric::efficiency_ci95_low] = efficiency - half;
  p.metrics[Metric::efficiency_ci95_high] = efficiency + half;
  p.metrics[Metric::bound_by] = std::string("wire");
  return p;
}

std::vector<Finding> found(const std::vector<Point>& points) {
  const core::Run run{.info = {}, .points = points};
  return findings({&run, 1});
}

/// The first of a kind; empty where there is none.
std::string sentence(const std::vector<Finding>& all, FindingKind kind) {
  const auto at = std::find_if(all.begin(), all.end(), [kind](const Finding& f) { return f.kind == kind; });
  return at == all.end() ? "" : at->sentence;
}

TEST(Findings, SayHowEfficiencyDependsOnTheMiniBatch) {
  EXPECT_EQ(sentence(found({step(256, 0.96), step(16, 0.61)}), FindingKind::efficiency),
            "resnet50 on 8 ranks: efficiency rises from 61 % (60–62 %) at batch 16 to 96 % (95–97 %) at batch 256.");
}

// 8 % and 34 % without an interval were "within their intervals".
TEST(Findings, TakeAMissingIntervalForNothing) {
  Point small = step(16, 0.08), large = step(256, 0.34);
  for (Point* p : {&small, &large}) {
    p->metrics[Metric::efficiency_ci95_low] = {};
    p->metrics[Metric::efficiency_ci95_high] = {};
  }
  const auto all = found({small, large});
  EXPECT_EQ(sentence(all, FindingKind::efficiency), "");
  EXPECT_EQ(sentence(all, FindingKind::not_trusted),
            "Of 2 points of scale nothing is concluded from the efficiency of these: 2 without an interval.");
}

TEST(Findings, LookAtAllBatchesOfACurve) {
  EXPECT_THAT(sentence(found({step(16, 0.9, 0.1), step(64, 0.5), step(256, 0.88, 0.1)}), FindingKind::efficiency),
              HasSubstr("is lowest with 50 % (49–51 %) at batch 64"));
  EXPECT_THAT(sentence(found({step(16, 0.85, 0.1), step(256, 0.9, 0.1)}), FindingKind::efficiency),
              HasSubstr("no difference of efficiency is shown"));
}

// "-0.02 % of accuracy is lost" was a gain within the noise.
TEST(Findings, CallAccuracyLostOnlyAboveTheNoise) {
  const auto said = [](double lost, double low) {
    Point fp32, int8;
    for (Point* p : {&fp32, &int8}) {
      p->experiment = "infer";
      p->factors[Factor::model] = std::string("mlp");
      p->factors[Factor::ranks] = std::int64_t{1};
      p->factors[Factor::batch_per_rank] = std::int64_t{1};
      p->factors[Factor::precision] = std::string(p == &fp32 ? "fp32" : "int8");
      p->metrics[Metric::time_s] = timed(p == &fp32 ? 2 : 1);
    }
    int8.metrics[Metric::accuracy_lost] = lost;
    int8.metrics[Metric::accuracy_lost_ci95_low] = low;
    int8.metrics[Metric::accuracy_lost_ci95_high] = lost + 0.001;
    std::string all;
    for (const Finding& f : found({fp32, int8})) all += f.sentence + "\n";
    return all;
  };
  EXPECT_THAT(said(-0.0002, -0.001), HasSubstr(", and no loss of accuracy is shown (-0.02 points)"));
  EXPECT_THAT(said(0.01, 0.005), HasSubstr(", and 1.00 points of accuracy are lost"));
  const std::string unknown = said(0.01, std::nan(""));
  EXPECT_THAT(unknown, AllOf(HasSubstr("1.00 points of accuracy lost (no interval)"), Not(HasSubstr("is shown"))));
}

// Three launches, none of which shows a loss, became "0.10 points of accuracy are lost".
TEST(Findings, ShowNoLossOfAccuracyThatNoLaunchShows) {
  std::vector<core::Run> runs;
  for (int launch = 0; launch < 3; ++launch) {
    core::Run run{.info = {}, .points = {}};
    run.info.run_id = std::to_string(launch);
    for (const char* precision : {"fp32", "int8"}) {
      Point p;
      p.experiment = "infer";
      p.factors[Factor::ranks] = std::int64_t{1};
      p.factors[Factor::precision] = std::string(precision);
      p.metrics[Metric::time_s] = timed(std::string(precision) == "fp32" ? 2 + 0.01 * launch : 1 + 0.01 * launch);
      if (std::string(precision) == "int8") {
        p.metrics[Metric::accuracy_lost] = 0.001 + 1e-5 * launch;
        p.metrics[Metric::accuracy_lost_ci95_low] = -0.002;
        p.metrics[Metric::accuracy_lost_ci95_high] = 0.004;
      }
      run.points.push_back(std::move(p));
    }
    runs.push_back(std::move(run));
  }
  EXPECT_THAT(sentence(findings(runs), FindingKind::change), HasSubstr("no loss of accuracy is shown (0.10 points)"));
}

TEST(Findings, CompareAccuraciesOnlyAfterAsManySamples) {
  const auto said = [](std::int64_t before, std::int64_t after) {
    Point dense = step(4, 0.10), coded = step(4, 0.25);
    coded.factors[Factor::codec] = std::string("qsgd4");
    for (auto [p, samples, accuracy] : {std::tuple{&dense, before, 0.6}, {&coded, after, 0.97}}) {
      if (samples > 0) p->metrics[Metric::learn_samples] = samples;
      p->metrics[Metric::accuracy_at_samples] = accuracy;
    }
    return sentence(found({dense, coded}), FindingKind::change);
  };
  EXPECT_THAT(said(2000, 2000), HasSubstr("accuracy 60.0 → 97.0 % after as many samples"));
  EXPECT_THAT(said(2000, 20000), AllOf(HasSubstr("accuracy 60.0 % after 2000 samples and 97.0 % after 20000"),
                                       Not(HasSubstr("as many samples"))));
  EXPECT_THAT(said(0, 0), Not(HasSubstr("97.0 %"))) << "an unknown number of samples equals no other";
}

TEST(Findings, NameTheTableThatAlgorithmsAreChosenBy) {
  Point plain = step(4, 0.5), tuned = step(4, 0.8);
  for (Point* p : {&plain, &tuned}) {
    p->factors[Factor::algorithm] = std::string("auto");
    p->factors[Factor::transport] = std::string("shm");
  }
  tuned.factors[Factor::tuned_table] = std::string("ab12");
  EXPECT_THAT(sentence(found({plain, tuned}), FindingKind::change),
              HasSubstr("auto/shm tuned ab12 instead of auto/shm on"));
}

TEST(Findings, NameTheCauseWithItsProbability) {
  EXPECT_EQ(sentence(found({step(16, 0.61)}), FindingKind::lost_to),
            "resnet50 on 8 ranks at batch 16: 39 % (38–40 %) of the speed is lost, mostly to the transfer itself.");
  Point unclear = step(16, 0.5);
  unclear.metrics[Metric::bound_by] = std::string("undecided");
  EXPECT_THAT(sentence(found({unclear}), FindingKind::lost_to), HasSubstr("what to is undecided"));
  EXPECT_EQ(sentence(found({step(16, 0.95, 0.04)}), FindingKind::lost_to), "");  // within the noise
}

// Faster arithmetic raises throughput and lowers efficiency: nothing of it is won back.
TEST(Findings, HoldPrecisionsAgainstEachOtherByThroughputAndEfficiency) {
  Point fast = step(4, 0.47);
  fast.factors[Factor::precision] = std::string("bf16");
  fast.metrics[Metric::time_s] = timed(0.1);
  fast.metrics[Metric::exposed_s] = 0.067;
  Point slow = step(4, 0.60);
  slow.metrics[Metric::time_s] = timed(0.156);
  slow.metrics[Metric::exposed_s] = 0.062;
  const auto all = found({slow, fast});
  EXPECT_EQ(
      sentence(all, FindingKind::change),
      "resnet50: bf16 instead of fp32 on 8 ranks at batch 4: throughput × 1.56 (1.53–1.59), efficiency 60 → 47 %, "
      "because the exchange (67.0 ms) now is over half of the step.");
  for (const auto& f : all) EXPECT_THAT(f.sentence, Not(HasSubstr("wins")));
}

TEST(Findings, SayWhatACodecChangesAndThatAccuracyWasNotMeasured) {
  Point coded = step(4, 0.25);
  coded.factors[Factor::codec] = std::string("qsgd4:bucket=512,norm=max");
  EXPECT_THAT(sentence(found({step(4, 0.10), coded}), FindingKind::change),
              AllOf(HasSubstr("4-bit gradients instead of uncompressed gradients"),
                    HasSubstr("efficiency 10 → 25 %, accuracy not measured here (`--learn`)")));
}

TEST(Findings, ShowNoDifferenceWithinIntervals) {
  Point coded = step(4, 0.501);
  coded.factors[Factor::codec] = std::string("bf16");
  const auto all = found({step(4, 0.5), coded});
  EXPECT_THAT(sentence(all, FindingKind::change), HasSubstr("no difference of throughput"));
  EXPECT_NE(all.front().kind, FindingKind::change);
}

Point call(const char* algorithm, double seconds, bool in_place = false) {
  Point p;
  p.experiment = "allreduce";
  p.factors[Factor::ranks] = std::int64_t{8};
  p.factors[Factor::collective] = std::string("allreduce");
  p.factors[Factor::size_bytes] = std::int64_t{1024};
  p.factors[Factor::algorithm] = std::string(algorithm);
  p.factors[Factor::in_place] = in_place;
  p.metrics[Metric::time_s] = timed(seconds);
  p.metrics[Metric::limit_s] = 1e-3;
  return p;
}

TEST(Findings, HoldTheFastestExchangeAgainstTheVendors) {
  EXPECT_EQ(
      found({call("mpi", 4e-3), call("ring", 3e-3), call("direct", 2e-3)}).front().sentence,
      "Allreduce of 1 KiB on 8 ranks: direct is the fastest with 2.00 ms (1.98 ms–2.02 ms), 2.00 times the limit; mpi "
      "takes 4.00 ms (3.96 ms–4.04 ms): × 2.00 (1.96–2.04).");
  EXPECT_THAT(sentence(found({call("ring", 2e-3), call("direct", 2.01e-3)}), FindingKind::fastest_exchange),
              HasSubstr("ring takes 2.00 ms (1.98 ms–2.02 ms), and direct is not shown to be slower"));
}

// Two were equally fast and MPI took seven times as long, and "no loss is shown".
TEST(Findings, NameAVendorsSlowExchangeWhereSeveralAreTheFastest) {
  const auto all = found({call("mpi", 14e-3), call("ring", 2e-3), call("direct", 2.01e-3)});
  EXPECT_EQ(all.front().kind, FindingKind::fastest_exchange);
  EXPECT_THAT(all.front().sentence, HasSubstr("mpi takes 14.0 ms"));
  EXPECT_EQ(found({call("mpi", 2.01e-3), call("ring", 2e-3), call("direct", 2.02e-3)}).front().kind,
            FindingKind::nothing_wrong);
}

// 5.79 ms of one algorithm were in place, and those of the others out of place.
TEST(Findings, KeepInPlaceApart) {
  for (const auto& f : found({call("ring", 1e-3, true), call("direct", 2e-3), call("ring", 3e-3)})) {
    if (f.kind != FindingKind::fastest_exchange) continue;
    const bool in_place = f.factors[Factor::in_place].get<bool>();
    EXPECT_THAT(f.sentence, HasSubstr(in_place ? "in place: a call by ring" : "out of place: direct is the fastest"));
  }
}

TEST(Findings, ConcludeNothingFromImplausibleEfficiency) {
  Point wrong = step(4, 2.56);
  wrong.metrics[Metric::efficiency_ci95_low] = {};
  wrong.metrics[Metric::efficiency_ci95_high] = {};
  const auto all = found({wrong, step(16, 0.8)});
  for (const auto& f : all) EXPECT_THAT(f.sentence, Not(HasSubstr("256 %")));
  EXPECT_THAT(sentence(all, FindingKind::not_trusted), HasSubstr("1 efficiency above 100 %"));
}

TEST(Findings, CarryCaveats) {
  Point crowded = step(16, 0.5);
  crowded.metrics[Metric::oversubscribed] = true;
  const auto all = found({crowded});
  EXPECT_EQ(all.front().kind, FindingKind::shared_cores);
  EXPECT_THAT(sentence(all, FindingKind::lost_to), HasSubstr("more busy threads than cores"));
  Point noisy = step(16, 0.5);
  noisy.metrics[Metric::noise_run_delay] = 0.6;
  EXPECT_THAT(sentence(found({noisy}), FindingKind::lost_to), HasSubstr("the machine was disturbed"));
}

TEST(Findings, NameASlowRankThatMostRowsName) {
  Point p = step(16, 0.5), q = step(64, 0.6), r = step(256, 0.7);
  for (Point* slow : {&p, &q}) {
    slow->metrics[Metric::slowest_rank] = std::int64_t{3};
    slow->metrics[Metric::slowest_host] = std::string("node1");
    slow->metrics[Metric::straggle_s] = 0.3;
  }
  const auto all = found({p, q, r});
  EXPECT_EQ(all.front().kind, FindingKind::slow_rank);
  EXPECT_THAT(all.front().sentence, HasSubstr("rank 3 on node1 is the slow one in 2 of 3 rows over all batches"));
  EXPECT_EQ(sentence(found({p, step(64, 0.6), r}), FindingKind::slow_rank), "");
}

TEST(Findings, SayWhatIsSmall) {
  const auto all = found({step(16, 0.2), step(256, 0.9)});
  EXPECT_EQ(all.front().kind, FindingKind::small_batch);
  EXPECT_EQ(sentence(found({step(16, 0.85), step(256, 0.9)}), FindingKind::small_batch), "");
}

std::vector<core::Run> launches(const std::vector<double>& seconds) {
  std::vector<core::Run> out;
  for (const double s : seconds) {
    core::Run run{.info = {}, .points = {call("ring", s)}};
    run.info.run_id = std::to_string(out.size());
    out.push_back(std::move(run));
  }
  return out;
}

TEST(Findings, NameALaunchFarBeyondTheSpreadOfTheOthers) {
  const auto bad = launches({1e-3, 1.01e-3, 2e-3, 0.99e-3});
  const auto all = findings(bad);
  ASSERT_EQ(all.front().kind, FindingKind::outlier_launch);
  EXPECT_EQ(all.front().figures.at("launch").value, 3);
  EXPECT_EQ(sentence(findings(launches({1e-3, 1.3e-3, 1.6e-3})), FindingKind::outlier_launch), "");
  EXPECT_EQ(sentence(findings(launches({1e-3, 2e-3})), FindingKind::outlier_launch), "");
}

// The others took 2.4 or 3.4 ms, so that 7.8 ms lay within their spread, and nothing was said of the launch beside
// which another program ran.
TEST(Findings, NameTheOneLaunchThatWasWithoutCores) {
  auto runs = launches({2.4e-3, 7.8e-3, 3.4e-3, 2.4e-3});
  EXPECT_EQ(sentence(findings(runs), FindingKind::outlier_launch), "");
  runs[1].points[0].metrics[Metric::noise_run_delay] = 0.6;
  EXPECT_EQ(sentence(findings(runs), FindingKind::outlier_launch), "") << "of the others it is not known";
  for (const std::size_t other : {0, 2, 3}) runs[other].points[0].metrics[Metric::noise_run_delay] = 0.0;
  const auto all = findings(runs);
  ASSERT_EQ(all.front().kind, FindingKind::outlier_launch);
  EXPECT_EQ(all.front().figures.at("launch").value, 2);
  EXPECT_THAT(all.front().sentence, HasSubstr("and it alone was without cores for up to 60 % of the time"));
  runs[2].points[0].metrics[Metric::noise_run_delay] = 0.1;
  EXPECT_EQ(sentence(findings(runs), FindingKind::outlier_launch), "") << "the machine was busy, not the launch";
}

TEST(Findings, SayThatMachinesAreMixed) {
  auto runs = launches({10e-3, 30e-3});
  runs[1].info.fingerprint = "other";
  const auto all = findings(runs);
  EXPECT_EQ(all.front().kind, FindingKind::mixed_machines);
  EXPECT_EQ(
      std::count_if(all.begin(), all.end(), [](const Finding& f) { return f.kind == FindingKind::fastest_exchange; }),
      2);
}

TEST(Findings, SayThatNothingIsWrong) {
  const auto all = found({step(16, 0.97, 0.02), step(64, 0.98, 0.02)});
  EXPECT_EQ(all.front().kind, FindingKind::nothing_wrong);
  EXPECT_THAT(all.front().sentence, HasSubstr("the lowest efficiency is 97 % (95–99 %)"));
  EXPECT_THAT(all.front().sentence, AllOf(HasSubstr("whether speed is lost is not shown"), Not(HasSubstr("no loss"))))
      << "the interval reaches below what counts as a loss";
  EXPECT_THAT(found({step(16, 0.985), step(64, 0.99)}).front().sentence,
              HasSubstr("The 2 rows of scale show no loss, no slow part"));
}

// "The 4 rows show no loss; the lowest efficiency is 50 % (10-98 %)", of which three had no interval.
TEST(Findings, CountOnlyRowsThatCanBeJudgedAsHavingNothingWrong) {
  std::vector<Point> points{step(64, 0.99)};
  for (const std::int64_t batch : {1, 2, 4}) {
    points.push_back(step(batch, 0.3));
    points.back().metrics[Metric::efficiency_ci95_low] = {};
    points.back().metrics[Metric::efficiency_ci95_high] = {};
  }
  const auto all = found(points);
  const auto fine = std::ranges::find(all, FindingKind::nothing_wrong, &Finding::kind);
  ASSERT_NE(fine, all.end());
  EXPECT_THAT(fine->sentence, HasSubstr("Of 4 rows of scale 1 can be judged and shows no loss"));
  EXPECT_EQ(fine->figures.at("rows").value, 1);
  Point unsure = call("ring", 2e-3);
  unsure.metrics[Metric::time_s] = 2e-3;
  EXPECT_EQ(sentence(found({unsure}), FindingKind::nothing_wrong), "") << "a time without an interval shows nothing";
}

TEST(Findings, LeaveOutWhatHasNoFigure) {
  Point wrong = step(16, 0.5), missing = step(64, 0.5);
  wrong.status = core::Status::mistrusted;
  missing.status = core::Status::unsupported;
  const auto all = found({wrong, missing});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].sentence, "Of 2 points of scale nothing is concluded from these: 1 mistrusted.");
  EXPECT_EQ(all[1].sentence, "Of 2 points of scale these have no figure: 1 unsupported.");
  EXPECT_TRUE(found({}).empty());
}

/// Runs of two machines and two builds over networks, links, scalings, strategies, codecs, precisions and batches.
std::vector<core::Run> mixed_runs() {
  std::vector<core::Run> runs;
  double efficiency = 0.2;
  for (const char* machine : {"m1", "m2"}) {
    for (const char* commit : {"c1", "c2"}) {
      core::Run run{.info = {}, .points = {}};
      run.info.run_id = std::string(machine) + commit;
      run.info.fingerprint = machine;
      run.info.commit = commit;
      for (const char* model : {"resnet50", "lstm"})
        for (const char* link : {"1gbe", "10gbe"})
          for (const char* scaling : {"weak", "strong"})
            for (const char* strategy : {"sync", "sharded"})
              for (const char* codec : {"none", "qsgd4:bucket=512", "qsgd4:bucket=128"})
                for (const std::int64_t batch : {16, 64}) {
                  efficiency = efficiency > 0.9 ? 0.11 : efficiency + 0.037;
                  Point p = step(batch, efficiency);
                  p.factors[Factor::model] = std::string(model);
                  p.factors[Factor::interconnect] = std::string(link);
                  p.factors[Factor::scaling] = std::string(scaling);
                  p.factors[Factor::strategy] = std::string(strategy);
                  p.factors[Factor::codec] = std::string(codec);
                  run.points.push_back(std::move(p));
                }
      for (const bool in_place : {false, true})
        for (const char* algorithm : {"mpi", "ring"}) {
          run.points.push_back(call(algorithm, efficiency += 0.01, in_place));
          run.points.back().factors[Factor::interconnect] = std::string("1gbe");
        }
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

TEST(Findings, NeverCrossAFactorThatTheyDoNotName) {
  const auto runs = mixed_runs();
  const auto all = findings(runs);
  std::set<std::string> sentences;
  std::set<FindingKind> kinds;
  for (const auto& f : all) {
    kinds.insert(f.kind);
    EXPECT_TRUE(sentences.insert(f.sentence).second) << "two findings say the same: " << f.sentence;
    ASSERT_FALSE(f.rows.empty()) << f.sentence;
    if (f.kind == FindingKind::mixed_machines) continue;
    const Point& first = runs[f.rows[0].run].points[f.rows[0].point];
    for (const auto& row : f.rows) {
      EXPECT_EQ(origin_of(runs[row.run].info), origin_of(runs[f.rows[0].run].info)) << f.sentence;
      for (std::size_t i = 0; i < core::factor_count; ++i) {
        const auto factor = static_cast<Factor>(i);
        if (std::find(f.over.begin(), f.over.end(), factor) != f.over.end()) continue;
        EXPECT_EQ(core::to_text(runs[row.run].points[row.point].factors[factor]), core::to_text(first.factors[factor]))
            << core::name(factor) << ": " << f.sentence;
      }
    }
  }
  for (const auto kind : {FindingKind::mixed_machines, FindingKind::change, FindingKind::efficiency,
                          FindingKind::small_batch, FindingKind::lost_to, FindingKind::fastest_exchange})
    EXPECT_TRUE(kinds.contains(kind)) << name(kind);
}

TEST(Findings, AreLinesForPrograms) {
  const auto all = found({step(16, 0.2), step(256, 0.9)});
  const core::Json line = to_json(all.front());
  EXPECT_EQ(line.at("kind"), "small_batch");
  EXPECT_EQ(line.at("factors").at("model"), "resnet50");
  EXPECT_EQ(line.at("over"), core::Json({"batch_per_rank", "batch_global"}));
  EXPECT_NEAR(line.at("figures").at("efficiency").at("low").get<double>(), 0.19, 1e-9);
  EXPECT_TRUE(line.at("probability").is_null());
}

TEST(Findings, SayWhatToRunNext) {
  EXPECT_EQ(found({step(16, 0.2), step(256, 0.9)}).front().next,
            "gradmeter scale --model resnet50 --ranks 8 --batch 256");
}

TEST(Shares, AreWordsWhereASimpleFractionIsNear) {
  EXPECT_EQ(share_in_words(0.66), "two thirds");
  EXPECT_EQ(share_in_words(0.41), "41 %");
  EXPECT_EQ(share_in_words(0.97), "almost all");
}

// 14 % were lost to ranks that slow each other down, and "no loss is shown".
TEST(Findings, CountWhatRanksLoseWithoutAnExchange) {
  Point apart = step(64, 0.86, 0.05);
  apart.factors[Factor::strategy] = std::string("independent");
  apart.metrics[Metric::bound_by] = std::string("memory");
  const auto all = found({apart, step(64, 0.98, 0.02)});
  EXPECT_THAT(sentence(all, FindingKind::lost_to), HasSubstr("ranks that slow each other down without any exchange"));
  EXPECT_EQ(sentence(all, FindingKind::nothing_wrong), "");
}

TEST(Findings, CallNoRankSlowForWhatTheMachineExplains) {
  Point p = step(16, 0.5);
  p.metrics[Metric::slowest_rank] = std::int64_t{1};
  p.metrics[Metric::straggle_s] = 0.08 / 0.5;
  p.metrics[Metric::blocks] = std::int64_t{10};
  p.metrics[Metric::steadiness] = 0.8;
  EXPECT_THAT(sentence(found({p}), FindingKind::slow_rank), HasSubstr("by 8 % of the step"));
  p.metrics[Metric::disturbed_blocks] = std::int64_t{6};
  EXPECT_EQ(sentence(found({p}), FindingKind::slow_rank), "") << "most blocks were up to a fifth slower";
  p.metrics[Metric::straggle_s] = 0.5 / 0.5;
  EXPECT_THAT(sentence(found({p}), FindingKind::slow_rank), HasSubstr("by 50 % of the step"));
}

Point kernel(const char* problem, const char* precision, double seconds, double roofline) {
  Point p;
  p.experiment = "kernels";
  p.factors[Factor::problem] = std::string(problem);
  p.factors[Factor::precision] = std::string(precision);
  p.metrics[Metric::time_s] = timed(seconds);
  p.metrics[Metric::roofline] = roofline;
  return p;
}

TEST(Findings, SayWhatKernelsReach) {
  const auto all = found({kernel("gemm:m=64", "fp32", 2e-3, 0.4), kernel("gemm:m=512", "fp32", 4e-3, 0.9)});
  EXPECT_THAT(sentence(all, FindingKind::roofline),
              AllOf(HasSubstr("from 40 % (gemm:m=64) to 90 % (gemm:m=512) of what the roofline allows")));
  EXPECT_THAT(sentence(found({kernel("gemm:m=64", "fp32", 2e-3, 0.4), kernel("gemm:m=64", "bf16", 1e-3, 0.4)}),
                       FindingKind::change),
              HasSubstr("bf16 instead of fp32: speed × 2.00 (1.96–2.04)"));
}

TEST(Findings, SayOnWhichLinksACodecPays) {
  const auto codec = [](const char* name, double crossover, double half_interval = 0.05) {
    Point p;
    p.experiment = "codecs";
    p.factors[Factor::codec] = std::string(name);
    for (const Metric m : {Metric::encode_s, Metric::decode_s, Metric::decode_add_s})
      p.metrics[m] = core::Summary{.median = 1, .ci95_low = 1 - half_interval, .ci95_high = 1 + half_interval, .n = 9};
    p.metrics[Metric::crossover_bytes_per_s] = crossover;
    p.metrics[Metric::wire_bits] = 4.0;
    p.metrics[Metric::error] = 0.1;
    return p;
  };
  EXPECT_THAT(sentence(found({codec("bf16", 1e9), codec("qsgd4", 2e9)}), FindingKind::crossover),
              HasSubstr("of the 2 codecs that a reduce-scatter and an all-gather can exchange 4-bit gradients pays on "
                        "the fastest links, those below 16 Gbit/s"));
  EXPECT_THAT(sentence(found({codec("bf16", 1.95e9), codec("qsgd4", 2e9)}), FindingKind::crossover),
              HasSubstr("no difference is shown between 4-bit gradients, which pays on links below 16 Gbit/s, and "));
  EXPECT_THAT(
      sentence(found({codec("bf16", 1.5e9), codec("qsgd4", 2e9), codec("lns4", 1e9, 0.6)}), FindingKind::crossover),
      HasSubstr("no difference is shown between"))
      << "the codec with the wide interval has the lowest median";
  EXPECT_THAT(sentence(found({codec("bf16", 1e9), codec("qsgd4", 2e9, NAN)}), FindingKind::crossover),
              HasSubstr("without intervals nothing is"));
  EXPECT_THAT(sentence(found({codec("bf16", 0, NAN), codec("qsgd4", 2e9)}), FindingKind::crossover),
              HasSubstr("4-bit gradients pays on"));
  EXPECT_THAT(sentence(found({codec("bf16", 0), codec("qsgd4", 0)}), FindingKind::crossover),
              HasSubstr("none of the 2 codecs that a reduce-scatter and an all-gather can exchange pays on any link"));
}

TEST(Findings, SayWhatTrainingReachesAndWhatAReplayTakes) {
  Point early, late;
  for (Point* p : {&early, &late}) {
    p->experiment = "train";
    p->factors[Factor::model] = std::string("mlp");
  }
  early.metrics[Metric::accuracy] = 0.9, early.metrics[Metric::epoch] = 1.0;
  late.metrics[Metric::accuracy] = 0.97, late.metrics[Metric::epoch] = 3.0;
  EXPECT_THAT(sentence(found({early, late}), FindingKind::accuracy),
              HasSubstr("reaches an accuracy of 97.0 % after 3 epochs"));
  Point replayed;
  replayed.experiment = "replay";
  replayed.metrics[Metric::time_s] = timed(0.03);
  replayed.metrics[Metric::baseline_time_s] = 0.02;
  EXPECT_THAT(sentence(found({replayed}), FindingKind::replayed), HasSubstr("takes 30.0 ms (29.7 ms–30.3 ms)"));
  EXPECT_NEAR(found({replayed}).front().figures.at("time_ratio").value, 1.5, 1e-9);
}

}  // namespace
}  // namespace gradmeter::analysis
