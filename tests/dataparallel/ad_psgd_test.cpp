// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/strategies/gossip.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "support/machines.hpp"
#include "support/served.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::each;
using test::farthest;
using test::Seen;
using test::serve;
using test::Served;
using test::uneven;
using test::unreliable;

TEST(AdPsgd, DrawsEveryPassiveRankEquallyOftenAndTheSameOneAgain) {
  for (const int ranks : {2, 3, 8, 9}) {
    std::map<int, int> times;
    int others = 0;
    constexpr int steps = 4000;
    for (int step = 1; step <= steps; ++step) {
      const int drawn = drawn_passive(2, ranks, static_cast<std::uint64_t>(step), 7);
      ++times[drawn];
      EXPECT_EQ(drawn_passive(2, ranks, static_cast<std::uint64_t>(step), 7), drawn);
      others += drawn_passive(2, ranks, static_cast<std::uint64_t>(step), 8) != drawn;
      others += drawn_passive(0, ranks, static_cast<std::uint64_t>(step), 7) != drawn;
    }
    const int passive = ranks - active_ranks(ranks);
    ASSERT_EQ(times.size(), static_cast<std::size_t>(passive)) << ranks;
    for (const auto& [rank, n] : times) {
      EXPECT_FALSE(is_active(rank)) << ranks;
      EXPECT_NEAR(double(n), double(steps) / passive, 0.1 * steps / passive) << ranks;
    }
    EXPECT_NEAR(double(others), 2.0 * steps * (passive - 1) / passive, 0.1 * steps) << "by seed and by rank";
  }
}

TEST(AdPsgd, OneRankTrainsAlone) {
  for (const char* optimizer : {"sgd", "momentum:mu=0.9"}) {
    const auto seen = serve({.strategy = "ad-psgd", .ranks = 1, .optimizer = optimizer});
    EXPECT_EQ(seen[0].weights, serve({.strategy = "independent", .ranks = 1, .optimizer = optimizer})[0].weights);
    EXPECT_EQ(seen[0].observed.updates, 12u);
    EXPECT_EQ(seen[0].observed.mean_staleness(), 0);
  }
}

/// Two workers whose computations are equally long and much longer than their messages.
Served lock_step() { return {.strategy = "ad-psgd", .ranks = 2, .path = true, .flops = 1e8}; }

/// There each average lies between the reads and the updates of both, as d-psgd has them.
TEST(AdPsgd, TwoInLockStepHaveTheBitsOfDPsgd) {
  for (const char* optimizer : {"sgd", "momentum:mu=0.9", "lars:eta=0.1"}) {
    for (const std::size_t elements : {200u, 600'000u}) {
      if (elements > 1000 && (test::sanitized || optimizer != std::string("sgd"))) continue;
      Served s = lock_step();
      s.optimizer = optimizer;
      s.elements = elements;
      if (elements > 1000) s.steps = each(3), s.flops = 2e9;
      const auto seen = serve(s);
      s.machine.slowdown = [](int rank, std::uint64_t) { return rank == 1 ? 1.7 : 1.0; };
      const auto uneven = serve(s);
      s.machine = {};
      s.strategy = "d-psgd";
      const auto expected = serve(s);
      for (std::size_t r = 0; r < 2; ++r) {
        EXPECT_EQ(seen[r].path, expected[r].path) << optimizer << " " << elements;
        EXPECT_EQ(seen[r].observed.staleness, (std::vector<std::uint64_t>{0, static_cast<std::uint64_t>(s.steps(0))}));
        EXPECT_EQ(seen[r].observed.largest_gap, 0u);
        EXPECT_NE(uneven[r].path, expected[r].path) << "the control";
      }
    }
  }
}

/// Whatever averages come in between.
TEST(AdPsgd, OnlyUpdatesChangeTheMean) {
  for (const auto& [ranks, elements] : {std::pair{2, 200u}, {3, 200u}, {5, 200u}, {8, 200u}, {4, 600'000u}}) {
    if (test::sanitized && elements > 1000) continue;
    for (const bool overlap : {true, false}) {
      Served s{.strategy = "ad-psgd",
               .ranks = ranks,
               .steps = each(6),
               .elements = elements,
               .overlap = overlap,
               .path = true,
               .judge = true};
      s.machine = uneven(ranks);
      auto seen = serve(s);
      EXPECT_LT(test::off_the_mean(s, seen), 2e-6) << ranks << " " << elements << " " << overlap;
      seen[0].path[0] = seen[1].path[0];
      EXPECT_GT(test::off_the_mean(s, seen), 1e-4) << "the control: a gradient at another rank's weights";
    }
  }
}

/// Three steps that drive the ranks apart, then steps of size 0.
std::vector<Seen> drift_and_average(const std::string& strategy, int ranks) {
  return serve({.strategy = strategy,
                .ranks = ranks,
                .steps = each(80),
                .updates = 3,
                .targets = Served::Targets::resting,
                .path = true,
                .judge = true});
}

TEST(AdPsgd, WithoutUpdatesAllComeToTheCommonMean) {
  for (const int ranks : {2, 3, 4, 5, 8}) {
    const auto seen = drift_and_average("ad-psgd", ranks), loose = drift_and_average("independent", ranks);
    const auto& mean = seen[0].evaluation_weights;
    EXPECT_LT(farthest(mean[79], mean[2]), 2e-6) << ranks << ": averages keep it";
    double early = 0, late = 0, control = 0;
    for (std::size_t r = 0; r < seen.size(); ++r) {
      early = std::max(early, double(farthest(seen[r].path[2], mean[2])));
      late = std::max(late, double(farthest(seen[r].weights, mean[2])));
      control = std::max(control, double(farthest(loose[r].weights, loose[0].weights)));
    }
    EXPECT_GT(early, 0.02) << ranks << ": there must be something to agree on";
    EXPECT_LT(late, 1e-3 * early) << ranks;
    EXPECT_GT(control, 0.02) << ranks << ": the control";
  }
}

TEST(AdPsgd, SendsTheModelOnceEachWayInEachStepOfEachActiveRank) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    for (const std::size_t elements : {200u, 1'700'000u}) {
      if (elements > 1000 && (ranks > 3 || ranks == 1 || test::sanitized)) continue;
      for (const bool overlap : {true, false}) {
        Served s{.strategy = "ad-psgd", .ranks = ranks, .elements = elements, .overlap = overlap};
        if (elements > 1000) s.steps = each(2), s.targets = Served::Targets::zero;
        s.judge = ranks == 3;  // outside the steps: it must not count
        std::uint64_t bytes = 0, calls = 0;
        for (const Seen& seen : serve(s)) bytes += seen.totals.bytes_sent, calls += seen.totals.calls;
        const auto steps = static_cast<std::uint64_t>(s.steps(0));
        const std::uint64_t chunks = elements > 1000 ? 7 : 1, active = ranks > 1 ? std::uint64_t(ranks + 1) / 2 : 0;
        EXPECT_EQ(bytes, 2 * active * steps * elements * sizeof(float)) << ranks << " " << elements;
        EXPECT_EQ(calls, 2 * active * steps * chunks) << ranks << " " << elements;
        const Forecast f = test::forecast(s);
        EXPECT_TRUE(f.exact);
        EXPECT_EQ(f.bytes, bytes);
        EXPECT_EQ(f.messages, calls);
      }
    }
  }
}

/// Of the wire alone, where computations and copies take no time.
TEST(AdPsgd, ARunTakesNoLessThanTheForecastAndNotMuchLonger) {
  for (const int ranks : {2, 3, 5}) {
    Served s{.strategy = "ad-psgd", .ranks = ranks, .steps = each(4), .elements = 200'000};
    s.flops = 1;
    s.machine.machine.memory_bytes_per_s = 1e14;
    double took = 0;
    for (const Seen& seen : serve(s)) took = std::max(took, seen.seconds);
    EXPECT_GT(took, test::forecast(s).seconds) << ranks;
    EXPECT_LT(took, 3.5 * test::forecast(s).seconds) << ranks << ": one way after the other, and unevenly drawn";
  }
}

TEST(AdPsgd, ASlowWorkerHoldsBackNobody) {
  for (const bool overlap : {true, false}) {
    Served s{.strategy = "ad-psgd", .ranks = 6, .overlap = overlap, .flops = 1e8};
    const auto even = serve(s);
    for (const int slow : {2, 3}) {  // an active rank and a passive one
      s.machine.slowdown = [slow](int rank, std::uint64_t) { return rank == slow ? 3.0 : 1.0; };
      const auto seen = serve(s);
      for (int r = 0; r < 6; ++r) {
        const auto rank = static_cast<std::size_t>(r);
        if (r == slow) {
          EXPECT_GT(seen[rank].seconds, 2.9 * even[rank].seconds);
        } else {
          EXPECT_LT(seen[rank].seconds, 1.02 * even[rank].seconds) << r << " beside " << slow;
        }
      }
      EXPECT_LT(seen[0].end, 1.03 * even[0].seconds) << "an active rank ends before slower ones have finished";
      s.strategy = "sync";
      EXPECT_GT(serve(s)[0].seconds, 2.9 * even[0].seconds) << "the control";
      s.strategy = "ad-psgd";
    }
  }
}

TEST(AdPsgd, StalenessIsTheAveragesBetweenReadAndUpdate) {
  Served s{.strategy = "ad-psgd", .ranks = 2, .flops = 1e8};
  s.steps = [](int rank) { return rank == 0 ? 36 : 12; };
  s.machine.slowdown = [](int rank, std::uint64_t) { return rank == 1 ? 3.0 : 1.0; };
  const auto seen = serve(s);
  EXPECT_EQ(seen[0].observed.staleness, (std::vector<std::uint64_t>{0, 36}));
  EXPECT_NEAR(seen[1].observed.mean_staleness(), 3, 0.1) << "three times as many as its own steps";
  EXPECT_EQ(seen[1].observed.updates, 12u);
  EXPECT_GE(seen[1].observed.largest_gap, 22u) << "36 updates against 12 at the end";
  // Of three ranks two are active, and the passive one has both their averages in each of its steps.
  const auto three = serve({.strategy = "ad-psgd", .ranks = 3, .flops = 1e8});
  EXPECT_EQ(three[1].observed.staleness, (std::vector<std::uint64_t>{0, 0, 12}));
}

TEST(AdPsgd, WeightsTravelUnderThePass) {
  Served s{.strategy = "ad-psgd", .ranks = 4, .elements = 60'000};
  s.machine.machine = gradmeter::test::linked(1e-6, 1e9, 1e12, s.machine.machine);
  s.flops = 5e7;
  const double early = serve(s)[0].seconds;
  s.overlap = false;
  EXPECT_LT(early, 0.75 * serve(s)[0].seconds);
}

TEST(AdPsgd, Learns) {
  for (const int ranks : {2, 3, 4, 5}) {
    const auto ends = test::run_workers(ranks, {.strategy = "ad-psgd", .steps = 48, .machine = uneven(ranks)});
    for (const auto& e : ends) EXPECT_LT(e.outcomes.back().loss_sum, 0.8 * e.outcomes.front().loss_sum) << ranks;
  }
}

TEST(AdPsgd, LostAndDoubledMessagesChangeNothingWhereTheOrderStays) {
  Served s = lock_step();
  s.flops = 1e9;
  const auto plain = serve(s);
  test::CountedFaults faults;
  s.machine.delivery_fault = std::ref(faults);
  const auto faulty = serve(s);
  EXPECT_GT(faults.lost, 3u);
  EXPECT_GT(faults.doubled, 3u);
  for (std::size_t r = 0; r < 2; ++r) EXPECT_EQ(faulty[r].path, plain[r].path);
}

TEST(AdPsgd, WorkersFinishInAnyOrder) {
  for (const int ranks : {2, 3, 5}) {
    for (const bool faults : {false, true}) {
      Served s{.strategy = "ad-psgd", .ranks = ranks};
      if (faults) s.machine.delivery_fault = unreliable;
      for (const int turn : {0, 1}) {
        s.steps = [turn](int rank) { return 3 + 4 * ((rank + turn) % 3); };
        const auto seen = serve(s);
        for (int r = 0; r < ranks; ++r) EXPECT_EQ(seen[static_cast<std::size_t>(r)].steps, s.steps(r)) << ranks;
      }
    }
  }
}

TEST(AdPsgd, ADeadWorkerStopsNobody) {
  for (const int dead : {1, 2}) {  // a passive and an active rank
    for (const bool faults : {false, true}) {
      Served s{.strategy = "ad-psgd", .ranks = 5, .steps = each(20)};
      if (faults) s.machine.delivery_fault = unreliable;
      s.machine.failures = {{.rank = dead, .at_s = serve(s)[static_cast<std::size_t>(dead)].seconds / 3}};
      const auto seen = serve(s);
      for (int r = 0; r < 5; ++r) {
        const auto& one = seen[static_cast<std::size_t>(r)];
        if (r == dead) {
          EXPECT_LT(one.steps, 15) << faults;
        } else {
          EXPECT_EQ(one.steps, 20) << r << " beside " << dead << " " << faults;
        }
      }
      if (dead == 1) {
        EXPECT_GT(seen[0].observed.staleness[0], 0u) << "steps without an average, where it was drawn";
      }
    }
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
