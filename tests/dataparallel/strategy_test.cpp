// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/strategy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "allreduce/schedule/slices.hpp"
#include "core/error.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "support/losses.hpp"
#include "support/machines.hpp"
#include "support/training.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::largest_difference;
using test::StepTrace;
using test::Trace;
using test::Training;
using ::testing::HasSubstr;

const model::Dataset& digits() {
  static const auto data = test::training_digits();
  return *data;
}

/// Every worker's trace.
std::vector<Trace> run(int workers, const Training& t, const SimMachine& m = {}) {
  std::vector<Trace> traces(static_cast<std::size_t>(workers));
  SimWorld(workers, m).run([&](Fabric& f) {
    traces[static_cast<std::size_t>(f.rank())] = test::train(f, t, digits());
  });
  return traces;
}

std::vector<double> losses(const std::vector<Trace>& traces) { return test::mean_losses(traces, &Trace::outcomes); }

SimMachine machine_with(std::string_view algorithm) {
  SimMachine m;
  m.algorithm = allreduce::find_algorithm(algorithm);
  return m;
}

class SyncEqualsOneWorker : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(SyncEqualsOneWorker, WithTheWholeBatchWhateverTheNumberOfWorkers) {
  const auto& [algorithm, optimizer] = GetParam();
  const Training t{.optimizer = optimizer};
  const auto one = run(1, t);
  ASSERT_LT(losses(one).back(), 0.8 * losses(one).front()) << "the run must learn, or it shows nothing";
  for (const int p : {1, 2, 3, 4, 8}) {
    const auto many = run(p, t, machine_with(algorithm));
    EXPECT_LT(largest_difference(losses(many), losses(one)), 1e-5) << p;
    for (const Trace& trace : many) EXPECT_LT(largest_difference(trace.weights, one.front().weights), 1e-5) << p;
  }
}

INSTANTIATE_TEST_SUITE_P(Virtual, SyncEqualsOneWorker,
                         ::testing::Combine(::testing::Values("ring", "recursive-doubling"),
                                            ::testing::Values("sgd", "momentum:mu=0.9", "nesterov:mu=0.9")),
                         [](const auto& param) {
                           std::string n = std::get<0>(param.param) + "_" + std::get<1>(param.param);
                           std::replace_if(
                               n.begin(), n.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return n;
                         });

TEST(Sync, TheBucketSizeChangesNoLossBeyondRounding) {
  const auto whole = run(4, {.bucket_bytes = 0});
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{25} << 20}) {
    const auto cut = run(4, {.bucket_bytes = bytes});
    EXPECT_LT(largest_difference(losses(cut), losses(whole)), 1e-5) << bytes;
  }
}

TEST(Sync, AllRanksHoldIdenticalBitsAfterEveryStep) {
  for (const auto* algorithm : {"ring", "recursive-doubling"}) {
    for (const int p : {2, 3, 4, 8}) {
      const auto traces = run(p, {}, machine_with(algorithm));
      for (std::size_t i = 0; i < traces.front().steps.size(); ++i) {
        for (const Trace& t : traces) {
          ASSERT_EQ(t.steps[i].weights, traces.front().steps[i].weights) << algorithm << " p " << p << " step " << i;
        }
      }
    }
  }
}

TEST(Sync, RanksSeeDifferentSamples) {
  const auto traces = run(4, {.steps = 1});
  for (std::size_t r = 1; r < 4; ++r) {
    EXPECT_NE(traces[r].outcomes[0].loss_sum, traces[0].outcomes[0].loss_sum);
  }
}

TEST(Independent, DriftsAwayFromTheOneWorkerAndItsPeers) {
  const Training t{.strategy = "independent", .own_start = false};
  const auto one = run(1, t), many = run(4, t);
  EXPECT_GT(largest_difference(losses(many), losses(one)), 1e-2);
  EXPECT_GT(largest_difference(many[0].weights, many[1].weights), 1e-3);
  EXPECT_NE(many[0].steps[0].weights, many[1].steps[0].weights);
}

TEST(Independent, OfOneWorkerEqualsSyncOfOneWorkerToTheBit) {
  const Training sync{.own_start = false}, alone{.strategy = "independent", .own_start = false};
  EXPECT_EQ(run(1, sync)[0].weights, run(1, alone)[0].weights);
}

TEST(Independent, SendsNothingAndNeitherDoesASingleSyncWorker) {
  for (const auto& trace : {run(4, {.strategy = "independent"})[2], run(1, {})[0]}) {
    for (const StepTrace& s : trace.steps) {
      EXPECT_TRUE(s.calls.empty());
      EXPECT_EQ(s.parts.bytes_sent, 0u);
    }
  }
}

TEST(Sync, EachRankSendsTheClosedFormInEveryStep) {
  const Training t{.steps = 3, .bucket_bytes = 8192};
  const model::Mlp mlp(t.widths);
  const auto buckets = make_buckets(mlp.tensors(), mlp.element_count(), t.bucket_bytes);
  ASSERT_GT(buckets.size(), 2u);
  for (const int p : {2, 3, 4, 7, 8}) {
    const auto ranks = static_cast<std::uint32_t>(p);
    const auto schedule = allreduce::find_algorithm("ring")->make({ranks, 1}).front();
    const auto traces = run(p, {.batch_global = 8u * ranks, .steps = 3, .bucket_bytes = t.bucket_bytes});
    for (std::size_t step = 0; step < 3; ++step) {
      std::uint64_t all = 0;
      for (std::uint32_t r = 0; r < ranks; ++r) {
        std::uint64_t exact = 0;
        for (const Bucket& b : buckets) {
          const auto whole = allreduce::Slices(allreduce::SliceCut::run, b.count, sizeof(float), ranks, 0, true)[0];
          exact += sizeof(float) * elements_sent(*schedule, r, whole);
        }
        const auto& parts = traces[r].steps[step].parts;
        EXPECT_EQ(parts.bytes_sent, exact) << "p " << p << " rank " << r;
        EXPECT_EQ(parts.bytes_required, exact);
        EXPECT_TRUE(parts.bytes_known);
        // The closed form, but for blocks that are not all of one length: at most 31 elements each way and bucket.
        const double closed = 2.0 * (p - 1) / p * double(mlp.element_count()) * 4;
        EXPECT_NEAR(double(parts.bytes_sent), closed, 2.0 * 31 * 4 * double(buckets.size())) << "p " << p;
        all += parts.bytes_sent;
      }
      EXPECT_EQ(all, 2u * (ranks - 1) * mlp.element_count() * sizeof(float)) << "p " << p;
    }
  }
}

/// Exchange and backward take about as long as each other.
SimMachine balanced_machine() {
  SimMachine m;
  m.machine.flops_per_s = 1e9;
  m.machine.memory_bytes_per_s = 1e12;
  m.machine = gradmeter::test::linked(1e-6, 6e8, 1e12, m.machine);
  return m;
}
Training deep(std::size_t bucket_bytes, std::string_view strategy = "sync") {
  return {.strategy = strategy,
          .widths = {784, 64, 64, 64, 64, 10},
          .batch_global = 16,
          .steps = 3,
          .bucket_bytes = bucket_bytes,
          .own_start = false};
}

/// Without the first step: a broadcast went before it, from which the ranks come one after another.
std::span<const StepTrace> settled(const Trace& t) { return std::span(t.steps).subspan(1); }

TEST(Sync, SmallBucketsTravelUnderTheBackwardPass) {
  for (const Trace& t : run(4, deep(4096), balanced_machine())) {
    for (const StepTrace& s : settled(t)) {
      ASSERT_GT(s.calls.size(), 4u);
      EXPECT_LT(s.calls[0].started, s.backward_end);
      EXPECT_LT(s.calls[2].finished, s.backward_end);
      EXPECT_GT(s.parts.overlap, 0);
      EXPECT_LT(s.parts.step, s.parts.compute + s.parts.communication);
      EXPECT_NEAR(s.parts.step, s.parts.compute + s.parts.communication - s.parts.overlap, 1e-12);
    }
  }
}

TEST(Sync, OneBucketForAllTravelsAfterTheBackwardPass) {
  for (const Trace& t : run(4, deep(0), balanced_machine())) {
    for (const StepTrace& s : t.steps) {
      ASSERT_EQ(s.calls.size(), 1u);
      EXPECT_GE(s.calls[0].started, s.backward_end);
      EXPECT_EQ(s.parts.overlap, 0);
      EXPECT_NEAR(s.parts.step, s.parts.compute + s.parts.communication, 1e-12);
    }
  }
}

TEST(Sync, OverlapShortensTheStep) {
  const auto cut = run(4, deep(4096), balanced_machine()), whole = run(4, deep(0), balanced_machine());
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(cut[r].steps[i].parts.step, 0.95 * whole[r].steps[i].parts.step);
  }
}

TEST(Sync, TheExchangeStartsAfterTheForwardPass) {
  for (const Trace& t : run(3, {}, balanced_machine())) {
    for (const StepTrace& s : t.steps) {
      for (const auto& c : s.calls) EXPECT_GE(c.posted, s.forward_end);
    }
  }
}

TEST(Sync, TheExposedTimeIsTheStepLessThatOfTheControl) {
  // No contention in virtual time: the headline and the interval union must agree.
  for (const std::size_t bytes : {0u, 4096u, 65536u}) {
    const auto sync = run(4, deep(bytes), balanced_machine());
    const auto control = run(4, deep(bytes, "independent"), balanced_machine());
    for (std::size_t r = 0; r < 4; ++r) {
      for (std::size_t i = 0; i < 3; ++i) {
        const auto& s = sync[r].steps[i].parts;
        EXPECT_NEAR(s.step - control[r].steps[i].parts.step, s.exposed, 1e-12) << bytes;
        EXPECT_GT(s.exposed, 0);
      }
    }
  }
}

TEST(Sync, EveryoneKeepsTheStragglersPaceAndItAloneSeesNoSkew) {
  SimMachine m = balanced_machine();
  m.slowdown = [](int rank, std::uint64_t) { return rank == 2 ? 3.0 : 1.0; };
  const auto alone = run(4, deep(4096, "independent"), m), sync = run(4, deep(4096), m);
  const double slow = alone[2].steps[0].parts.step, fast = alone[0].steps[0].parts.step;
  EXPECT_NEAR(slow, 3 * fast, 1e-12);
  for (const Trace& t : sync) EXPECT_GE(t.steps[2].begin - t.steps[1].begin, 0.99 * slow);
  for (std::size_t r = 0; r < 4; ++r) {
    const StepTrace& s = sync[r].steps[1];
    StepRecord record{.step = {s.begin, s.begin + s.parts.step}, .computations = {}, .calls = {}};
    std::vector<double> last_start(s.calls.size(), 0.0);
    for (std::size_t i = 0; i < s.calls.size(); ++i) {
      record.calls.push_back({"", s.calls[i]});
      for (const Trace& t : sync) last_start[i] = std::max(last_start[i], t.steps[1].calls[i].started);
    }
    const double skew = decompose(record, last_start).skew;
    if (r == 2) {
      EXPECT_LT(skew, 0.05 * fast);
    } else {
      EXPECT_GT(skew, 0.5 * (slow - fast)) << r;
    }
  }
}

TEST(Strategy, BeginGivesAllRanksTheWeightsOfRankZero) {
  const auto traces = run(3, {.steps = 0});
  const auto root = run(1, {.steps = 0});
  for (const Trace& t : traces) EXPECT_EQ(t.weights, root[0].weights);
  const auto apart = run(3, {.strategy = "independent", .steps = 0});
  EXPECT_NE(apart[0].weights, apart[1].weights);
}

TEST(Strategy, AnUnknownNameIsRefusedWithAllThatThereAre) {
  try {
    (void)find_strategy("synk");
    FAIL() << "accepted";
  } catch (const core::UsageError& e) {
    for (const auto& s : strategies()) EXPECT_THAT(e.what(), HasSubstr(std::string(s.name)));
  }
  for (const auto& s : strategies()) {
    EXPECT_EQ(find_strategy(s.name)->info().name, s.name);
    EXPECT_FALSE(s.rule.empty());
    EXPECT_FALSE(s.source.empty());
  }
}

TEST(Strategy, TheTableSaysWhoCommunicates) {
  for (const auto& s : strategies()) {
    bool called = false;
    // Longer than any block of steps between two exchanges.
    for (const Trace& t : run(2, {.strategy = s.name, .batch_global = 4, .steps = 33})) {
      for (const StepTrace& step : t.steps) called |= !step.calls.empty();
    }
    EXPECT_EQ(called, s.communication != CommunicationPattern::nothing) << s.name;
  }
}

/// Whoever compares a strategy with its paper must read in its row what is not as there.
TEST(StrategyRows, SayWhereTheyDifferFromTheirPapers) {
  const auto rule = [](const char* name) { return std::string(find_strategy(name)->info().rule); };
  EXPECT_THAT(rule("sharded"), HasSubstr("stage 1"));
  EXPECT_THAT(rule("dc-asgd"), HasSubstr("keeps its default of the constant form"));
  EXPECT_THAT(rule("es"), HasSubstr("without the paper's rank shaping"));
  EXPECT_THAT(rule("adacomm"), HasSubstr("the paper's are seconds"));
}

}  // namespace
}  // namespace gradmeter::dataparallel
