#include "dataparallel/strategies/parameter_server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>

#include "core/error.hpp"
#include "core/format.hpp"
#include "support/served.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::each;
using test::sanitized;
using test::Seen;
using test::serve;
using test::Served;
using test::target_of;
using test::uneven;
using ::testing::HasSubstr;

TEST(ParameterServer, AsynchronousWithOneWorkerIsSequentialToTheBit) {
  for (const auto* rule : {"sgd", "momentum:mu=0.9"}) {
    const auto alone = serve({.strategy = "independent", .ranks = 1, .optimizer = rule});
    for (const int servers : {0, 1, 3}) {
      Served s{.ranks = 1 + servers, .servers = servers, .optimizer = rule};
      EXPECT_EQ(serve(s)[0].weights, alone[0].weights) << rule << " " << servers;
      EXPECT_EQ(serve(s)[0].first, alone[0].first);
      s.strategy = "ps-async:prefetch=1";
      EXPECT_NE(serve(s)[0].weights, alone[0].weights) << "the control: weights without the last gradient";
    }
  }
}

TEST(ParameterServer, WithoutStalenessStaleSynchronousIsBulkSynchronousToTheBitWhateverTheSpeeds) {
  for (const auto* rule : {"sgd", "momentum:mu=0.9"}) {
    for (const int servers : {0, 2}) {
      Served s{.strategy = "ps-sync", .ranks = 4 + servers, .servers = servers, .optimizer = rule};
      const auto even = serve(s);
      s.machine = uneven(4);
      const auto sync = serve(s);
      s.strategy = "ps-ssp:staleness=0";
      const auto ssp = serve(s);
      s.strategy = "ps-ssp:staleness=1";
      const auto stale = serve(s);
      for (std::size_t r = 0; r < 4; ++r) {
        EXPECT_EQ(ssp[r].first, sync[r].first) << rule << " " << servers;
        EXPECT_EQ(ssp[r].weights, sync[r].weights);
        EXPECT_EQ(even[r].weights, sync[r].weights);
        EXPECT_EQ(sync[r].weights, sync[0].weights);
        EXPECT_EQ(ssp[r].observed.largest_gap, sync[r].observed.largest_gap);
      }
      EXPECT_NE(stale[0].weights, sync[0].weights) << "the control";
    }
  }
}

/// Weights after the steps of `s`, with gradients that are summed in this order of the workers, by hand.
std::vector<float> summed_in_order(const Served& s, const std::vector<int>& order) {
  std::vector<float> out;
  for (std::size_t i = 0; i < s.elements; ++i) {
    float x = 1 + 0.01f * static_cast<float>(i % 50);  // rank 0's first weights
    for (int step = 0; step < s.steps(0); ++step) {
      float sum = 0;
      for (const int r : order) sum += x - (target_of(r, step, i) + target_of(r, step, i + s.elements)) / 2;
      const volatile float change = s.step_size * (sum / static_cast<float>(order.size()));  // rounded
      x -= change;
    }
    out.push_back(x);
  }
  return out;
}

TEST(ParameterServer, ServersSumInTheOrderOfRanksToTheBit) {
  Served s{.strategy = "ps-sync", .ranks = 5, .servers = 1};
  s.machine = uneven(4);
  EXPECT_EQ(serve(s)[0].weights, summed_in_order(s, {0, 1, 2, 3}));
  EXPECT_NE(serve(s)[0].weights, summed_in_order(s, {2, 1, 0, 3})) << "the control: another order has other bits";
}

TEST(ParameterServer, BulkSynchronousIsSyncWithinRounding) {
  for (const int ranks : {1, 2, 3, 5}) {
    const auto sync = serve({.strategy = "sync", .ranks = ranks, .optimizer = "momentum:mu=0.9"});
    const auto served = serve({.strategy = "ps-sync", .ranks = ranks, .optimizer = "momentum:mu=0.9"});
    const auto apart = serve({.strategy = "independent", .ranks = ranks, .optimizer = "momentum:mu=0.9"});
    double most = 0, control = 0;
    for (std::size_t i = 0; i < sync[0].weights.size(); ++i) {
      most = std::max(most, std::fabs(double(sync[0].weights[i]) - double(served[0].weights[i])));
      control = std::max(control, std::fabs(double(sync[0].weights[i]) - double(apart[0].weights[i])));
    }
    EXPECT_LT(most, 2e-6) << ranks;
    if (ranks > 1) {
      EXPECT_GT(control, 1e-2);
    }
  }
}

struct Staleness {
  std::uint64_t sum = 0, updates = 0, under_way = 0, most = 0, p99 = 0;
};
Staleness staleness_of(const Seen& server) {
  Staleness s{.under_way = server.observed.staleness_under_way};
  const auto& h = server.observed.staleness;
  for (std::size_t k = 0; k < h.size(); ++k) {
    s.sum += k * h[k];
    s.updates += h[k];
    if (h[k] > 0) s.most = k;
  }
  std::uint64_t seen = 0;
  for (std::size_t k = 0; k < h.size() && seen * 100 < s.updates * 99; ++k) seen += h[k], s.p99 = k;
  return s;
}

TEST(ParameterServer, TheMeanStalenessIsTheNumberOfOtherWorkersWhateverTheSpeeds) {
  std::uint64_t tail_even = 0, tail_uneven = 0;
  for (const int workers : {1, 2, 3, 5}) {
    for (const int servers : {1, 2}) {
      for (const bool is_even : {true, false}) {
        Served s{.ranks = workers + servers, .servers = servers, .steps = each(60)};
        if (!is_even) s.machine = uneven(workers);
        const auto seen = serve(s);
        s.strategy = "ps-async:prefetch=1";
        const auto ahead = serve(s);
        for (int k = 0; k < servers; ++k) {
          const auto server = static_cast<std::size_t>(workers + k);
          const auto others = static_cast<std::uint64_t>(workers - 1);
          const Staleness x = staleness_of(seen[server]), y = staleness_of(ahead[server]);
          EXPECT_GT(x.updates, 50u);
          EXPECT_EQ(x.sum + x.under_way, others * x.updates) << workers << " workers, exact but for the ends";
          EXPECT_LE(x.under_way, static_cast<std::uint64_t>(workers) * (x.most + 1));
          EXPECT_GT(y.sum + y.under_way, (others + 1) * y.updates - y.updates / 4)
              << "the control: weights that were asked for a step ahead lack one more update of every worker";
          if (workers == 5) (is_even ? tail_even : tail_uneven) = x.p99;
        }
      }
    }
  }
  EXPECT_GT(tail_uneven, 2 * tail_even) << "what the mean hides";
}

TEST(ParameterServer, TheStalenessBoundHoldsExactlyAndIsReached) {
  for (const std::uint64_t bound : {0u, 1u, 2u, 5u}) {
    for (const auto* more : {"", ",prefetch=1"}) {
      Served s{.strategy = fmt::format("ps-ssp:staleness={}{}", bound, more), .ranks = 4, .steps = each(30)};
      s.machine.slowdown = [](int rank, std::uint64_t) { return rank == 3 ? 10.0 : 1.0; };
      std::uint64_t gap = 0, staleness = 0;
      double held = 0;
      for (const Seen& seen : serve(s)) {
        gap = std::max(gap, seen.observed.largest_gap);
        held += seen.observed.held_s;
        staleness = std::max(staleness, staleness_of(seen).most);
      }
      EXPECT_EQ(gap, bound + 1) << s.strategy;
      EXPECT_GT(held, 0);
      s.strategy = fmt::format("ps-async{}", *more ? ":prefetch=1" : "");
      EXPECT_GT(serve(s)[0].observed.largest_gap, bound + 3) << "the control: without the bound";
    }
  }
}

/// ηh up to which x' = x - ηh·x(τ updates ago) is stable.
double delay_limit(int delay) { return 2 * std::sin(std::numbers::pi / (4.0 * delay + 2)); }

/// What that sequence is after each round of τ + 1 updates.
std::vector<float> delayed(float x0, float rate, std::size_t delay, std::size_t rounds) {
  std::vector<float> x(delay + 1, x0), out;
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i <= delay; ++i) x.push_back(x.back() - rate * x[x.size() - 1 - delay]);
    out.push_back(x.back());
  }
  return out;
}

/// log of the factor by which the sequence grows in a round in the long run: of its largest root, z^(τ+1) = z^τ - ηh,
/// which at the limit lies on the unit circle.
double growth_of_root(double rate, int delay) {
  auto z = std::polar(1.0, std::numbers::pi / (2.0 * delay + 1));
  for (int i = 0; i < 50; ++i) {  // Newton
    const auto low = std::pow(z, delay - 1);
    z -= (low * z * (z - 1.0) + rate) / (low * (double(delay + 1) * z - double(delay)));
  }
  return (delay + 1) * std::log(std::abs(z));
}

/// The same of a path, from its 10th round on, when the other roots have died down. A pair of roots r·e^±iφ is left
/// (for τ = 0 one root), and x[n]·x[n+2] - x[n+1]² is a constant times r^2n.
double growth_of_path(const std::vector<double>& x, int delay) {
  const std::size_t first = 10, last = x.size() - 3;
  const auto squared = [&](std::size_t n) { return delay == 0 ? x[n] * x[n] : x[n] * x[n + 2] - x[n + 1] * x[n + 1]; };
  return std::log(squared(last) / squared(first)) / 2 / double(last - first);
}

TEST(ParameterServer, InLockStepAFixedDelayIsStableUpToItsLimit) {
  for (int delay = 0; delay <= 15; ++delay) {
    if (sanitized && delay > 3) break;
    const double limit = delay_limit(delay);
    // Every element has its own ηh, so one run shows both sides; and that it is no neighbour's delay, whose limits lie
    // on the other side.
    std::vector<double> rates{0.99 * limit, 1.01 * limit, 1.01 * delay_limit(delay + 1)};
    if (delay > 0) rates.push_back(0.99 * delay_limit(delay - 1));
    const std::size_t rounds = 24;
    Served s{.strategy = "ps-async:scale=sum",
             .ranks = delay + 2,
             .servers = 1,
             .steps = each(rounds),
             .elements = 2 * rates.size(),
             .step_size = 1,
             .curvatures = {rates.begin(), rates.end()},
             .targets = Served::Targets::zero,
             .path = true,
             .flops = 1e8};  // long enough that all start their first step before anybody ends it
    const auto seen = serve(s);
    // Whoever ends last has seen the updates of all in each round.
    const Seen& last = *std::max_element(seen.begin(), seen.end() - 1,
                                         [](const Seen& a, const Seen& b) { return a.seconds < b.seconds; });
    ASSERT_EQ(last.path.size(), rounds);
    for (std::size_t k = 0; k < rates.size(); ++k) {
      std::vector<double> x;
      for (const auto& weights : last.path) x.push_back(weights[k]);
      const auto exact = delayed(1 + 0.01f * static_cast<float>(k), s.curvatures[k], std::size_t(delay), rounds);
      double most = 0;
      for (std::size_t i = 0; i < rounds; ++i) {
        most = std::max(most, std::fabs(x[i]));
        EXPECT_NEAR(x[i], exact[i], 1e-5 * most) << "delay " << delay << " rate " << rates[k] << " round " << i;
      }
      const double growth = growth_of_path(x, delay), expected = growth_of_root(rates[k], delay);
      EXPECT_NEAR(growth, expected, 1e-4 + 1e-3 * std::fabs(expected)) << "delay " << delay << " rate " << rates[k];
      const bool stable = k == 0 || k == 2;
      if (stable) {
        EXPECT_LT(growth, -0.005) << "delay " << delay << " rate " << rates[k] << " of " << limit;
      } else {
        EXPECT_GT(growth, 0.005) << "delay " << delay << " rate " << rates[k] << " of " << limit;
      }
    }
  }
}

TEST(ParameterServer, TheBytesAreThoseOfTheForecastExactly) {
  for (const char* strategy : {"ps-sync", "ps-async", "ps-async:push=3,fetch=2", "ps-async:push=2,fetch=4,prefetch=1",
                               "ps-ssp:staleness=1", "ps-ssp:staleness=0,fetch=5", "easgd:every=3"}) {
    for (const auto& [ranks, servers] : {std::pair{1, 0}, {2, 0}, {3, 0}, {5, 0}, {4, 1}, {5, 2}, {3, 2}}) {
      if (sanitized && ranks > 3) continue;
      for (const char* codec : {"none", "qsgd8:bucket=64,min=1", "bf16:min=1", "onebit:bucket=64,min=1"}) {
        Served s{.strategy = strategy, .ranks = ranks, .servers = servers, .codec = codec, .elements = 1000};
        s.judge = ranks == 3;  // beside the steps: it must not count
        std::uint64_t bytes = 0, calls = 0;
        for (const Seen& seen : serve(s)) bytes += seen.totals.bytes_sent, calls += seen.totals.calls;
        const Forecast f = forecast(s);
        EXPECT_EQ(bytes, f.bytes) << strategy << " " << ranks << " " << servers << " " << codec;
        EXPECT_TRUE(f.known);
        if (servers > 0) {
          EXPECT_EQ(calls, f.messages) << strategy << " " << ranks << " " << servers << " " << codec;
        } else if (ranks > 1) {  // the own server's are no traffic
          EXPECT_EQ(calls * static_cast<unsigned>(ranks - 1), f.messages * static_cast<unsigned>(ranks));
        }
      }
    }
  }
}

TEST(ParameterServer, WithoutACodecTheBytesAreTheClosedForm) {
  const std::uint64_t m = 1000 * sizeof(float), steps = 12;
  Served s{.strategy = "ps-sync", .ranks = 5, .elements = 1000};
  EXPECT_EQ(forecast(s).bytes, 2 * 4 * m * steps) << "co-located: 2(P-1)/P M for each of P ranks";
  EXPECT_NEAR(forecast(s).seconds, 2.0 * 4 / 5 * double(m * steps) / s.machine.link.bytes_per_s, 12 * 128 / 1e10);
  s.servers = 2;
  EXPECT_EQ(forecast(s).bytes, 2 * 3 * m * steps) << "dedicated: M up, M down for each of 3 workers";
  EXPECT_NEAR(forecast(s).seconds, 3.0 / 2 * double(m * steps) / s.machine.link.bytes_per_s, 12 * 128 / 1e10);
  s.servers = 4;
  EXPECT_NEAR(forecast(s).seconds, double(m * steps) / s.machine.link.bytes_per_s, 1e-12) << "the worker's link binds";
  s.codec = "qsgd8:bucket=64,min=1";
  EXPECT_LT(forecast(s).bytes, 2 * m * steps / 3);
}

TEST(ParameterServer, ARunTakesNoLessThanTheForecast) {
  for (const int servers : {0, 1, 2, 4}) {
    Served s{.strategy = "ps-sync", .ranks = 4 + servers, .servers = servers, .steps = each(3), .elements = 200'000};
    s.flops = 1;
    const double least = forecast(s).seconds, took = serve(s)[0].seconds;
    EXPECT_GT(took, least) << servers;
    EXPECT_LT(took, 4 * least + 1e-3) << servers;
  }
}

TEST(ParameterServer, ShardsOfManyChunksTravelWhole) {
  // 6.5 MiB: seven chunks, more than the port may have on its way and a worker unacknowledged.
  const Served s{.strategy = "ps-sync", .ranks = 3, .servers = 1, .steps = each(2), .elements = 1'700'000};
  const auto served = serve(s);
  std::uint64_t bytes = 0, calls = 0;
  for (const Seen& seen : served) bytes += seen.totals.bytes_sent, calls += seen.totals.calls;
  EXPECT_EQ(bytes, forecast(s).bytes);
  EXPECT_EQ(calls, forecast(s).messages);
  EXPECT_EQ(forecast(s).messages, 2u * 2 * (2 * 7 + 7));
  const auto sync = serve({.strategy = "sync", .ranks = 2, .steps = each(2), .elements = s.elements});
  double most = 0;
  for (std::size_t i = 0; i < s.elements; ++i) {
    most = std::max(most, std::fabs(double(served[0].weights[i]) - double(sync[0].weights[i])));
  }
  EXPECT_LT(most, 1e-6);
  EXPECT_EQ(served[0].weights, served[1].weights);
}

/// Half a step is computation, half is on the wire.
Served balanced(const char* strategy) {
  Served s{.strategy = strategy, .ranks = 3, .servers = 2, .elements = 60'000};
  s.machine.link = {.latency_s = 1e-6, .bytes_per_s = 1e9, .reduce_bytes_per_s = 1e12};
  s.flops = 3e7;
  return s;
}

TEST(ParameterServer, WeightsThatAreAskedForAheadTravelUnderTheComputation) {
  const double after = serve(balanced("ps-async"))[0].seconds,
               ahead = serve(balanced("ps-async:prefetch=1"))[0].seconds;
  EXPECT_LT(ahead, 0.8 * after);
}

TEST(ParameterServer, ChunksTravelUnderTheBackwardPass) {
  Served s = balanced("ps-async");
  s.elements = 900'000;  // tensors and chunks are of about one size
  s.flops = 6e8;
  const auto early = serve(s);
  s.overlap = false;
  const auto late = serve(s);
  EXPECT_LT(early[0].seconds, 0.95 * late[0].seconds);
  EXPECT_EQ(early[0].weights, late[0].weights);
}

TEST(ParameterServer, AllWorkersJudgeTheServersWeightsOfOneMoment) {
  for (const auto* strategy : {"ps-sync", "ps-async", "ps-ssp", "easgd:every=2", "ps-async:push=2,fetch=3"}) {
    for (const int servers : {0, 2}) {
      Served s{.strategy = strategy, .ranks = 3 + servers, .servers = servers, .judge = true};
      s.machine = uneven(3);
      const auto judged = serve(s);
      for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(judged[r].judged, judged[0].judged) << strategy << " " << r;
      EXPECT_EQ(judged[0].judged.size(), 12u);
      if (s.strategy == "ps-sync") {
        EXPECT_EQ(judged[1].judged.back(), judged[1].weights);
      } else {
        EXPECT_NE(judged[1].judged.back(), judged[1].weights) << "the control: theirs are not its own";
      }
    }
  }
}

TEST(ParameterServer, JudgingChangesNothing) {
  Served s{.strategy = "ps-sync", .ranks = 3};
  const auto plain = serve(s);
  s.judge = true;
  const auto judged = serve(s);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(judged[r].first, plain[r].first);
    EXPECT_EQ(judged[r].observed.largest_gap, plain[r].observed.largest_gap);
    EXPECT_EQ(judged[r].observed.staleness, plain[r].observed.staleness);
    EXPECT_EQ(judged[r].totals.bytes_sent, plain[r].totals.bytes_sent);
    EXPECT_EQ(judged[r].totals.calls, plain[r].totals.calls);
  }
  EXPECT_GT(judged[0].seconds, plain[0].seconds) << "the control: it did ask";
}

TEST(ParameterServer, InBetweenTheWorkerAppliesItsOwnGradients) {
  const auto alone = serve({.strategy = "independent", .ranks = 1});
  const auto seldom = serve({.strategy = "ps-async:push=4,fetch=4", .ranks = 1});
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(seldom[0].first[i], alone[0].first[i], 1e-6) << i;
  const auto early = serve({.strategy = "ps-async:push=4,fetch=2", .ranks = 1});
  EXPECT_GT(std::fabs(early[0].first[1] - alone[0].first[1]), 1e-3) << "the control: fetched before it was pushed";
}

TEST(ParameterServer, TheSumMovesAsManyTimesFurtherAsThereAreWorkers) {
  const auto mean = serve({.strategy = "ps-async:scale=mean",
                           .ranks = 5,
                           .servers = 1,
                           .steps = each(1),
                           .targets = Served::Targets::zero});
  const auto sum = serve(
      {.strategy = "ps-async:scale=sum", .ranks = 5, .servers = 1, .steps = each(1), .targets = Served::Targets::zero});
  const auto all = [](const std::vector<Seen>& seen) {  // whoever came last has seen the updates of all
    float least = 1;
    for (std::size_t r = 0; r < 4; ++r) least = std::min(least, seen[r].weights[0]);
    return 1 - least;
  };
  EXPECT_NEAR(all(sum), 4 * all(mean), 1e-6);
  EXPECT_NEAR(all(mean), 0.1, 1e-6) << "as far as one step of sync";
}

TEST(ParameterServer, WhatCannotBeServedIsRefusedWithTheReason) {
  const auto why = [](const StrategyOptions& o, int ranks, int servers = 0) {
    const auto rule = make_optimizer("sgd", {});
    return find_strategy("ps-async")->with_servers(servers)->make(o)->refusal(*rule, ranks);
  };
  EXPECT_EQ(why({}, 1), "");
  EXPECT_EQ(why({}, 2, 1), "");
  EXPECT_THAT(why({}, 2, 2), HasSubstr("none train"));
  EXPECT_THAT(why({.optimizer = "lars"}, 2), HasSubstr("needs whole tensors"));
  for (const auto& row : compression::codecs()) {
    EXPECT_EQ(why({.codec = compression::find_codec(row.name)}, 2), "") << row.name << ": all codecs go by mail";
  }
  EXPECT_THROW(find_strategy("ps-async:scale=median"), core::UsageError);
  EXPECT_THROW(find_strategy("ps-async:push=0"), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::dataparallel
