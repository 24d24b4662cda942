// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/strategy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "support/machines.hpp"
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

TEST(ParameterServer, TheBytesAreThoseOfTheForecastExactly) {
  for (const char* strategy : {"ps-sync", "ps-async", "ps-async:push=3,fetch=2", "ps-async:push=2,fetch=4,prefetch=1",
                               "ps-ssp:staleness=1", "ps-ssp:staleness=0,fetch=5", "easgd:every=3"}) {
    for (const auto& [ranks, servers] : {std::pair{1, 0}, {2, 0}, {3, 0}, {5, 0}, {4, 1}, {5, 2}, {3, 2}}) {
      if (sanitized && ranks > 3) continue;
      for (const char* codec : {"none", "qsgd8:bucket=64,min=1", "bf16:min=1", "onebit:bucket=64,min=1"}) {
        Served s{.strategy = strategy, .ranks = ranks, .servers = servers, .codec = codec, .elements = 1000};
        s.judge = ranks == 3;  // outside the steps: it must not count
        std::uint64_t bytes = 0, calls = 0;
        for (const Seen& seen : serve(s)) bytes += seen.totals.bytes_sent, calls += seen.totals.calls;
        const Forecast f = forecast(s);
        EXPECT_EQ(bytes, f.bytes) << strategy << " " << ranks << " " << servers << " " << codec;
        EXPECT_TRUE(f.exact);
        if (servers > 0) {
          EXPECT_EQ(calls, f.messages) << strategy << " " << ranks << " " << servers << " " << codec;
        } else if (ranks > 1) {  // the own server's are no traffic
          EXPECT_EQ(calls * static_cast<unsigned>(ranks - 1), f.messages * static_cast<unsigned>(ranks));
        }
      }
    }
  }
}

TEST(ParameterServer, WithABoundWeightsArePulledAsOftenAsItAsksAndAtMostAsForecast) {
  const auto bytes = [](const std::string& strategy) {
    Served s{.strategy = strategy, .ranks = 5, .servers = 1, .steps = each(48), .elements = 1000};
    s.machine = uneven(4);
    std::uint64_t sum = 0;
    for (const Seen& seen : serve(s)) sum += seen.totals.bytes_sent;
    const Forecast f = forecast(s);
    EXPECT_EQ(f.exact, f.bytes == sum) << strategy;
    EXPECT_LE(sum, f.bytes) << strategy;
    return sum;
  };
  const auto often = bytes("ps-ssp:staleness=2"), bound = bytes("ps-ssp:staleness=2,fetch=8"),
             loose = bytes("ps-ssp:staleness=20,fetch=8"), seldom = bytes("ps-async:fetch=8");
  EXPECT_LT(bound, often);
  EXPECT_GT(bound, loose);
  EXPECT_GE(loose, seldom);
  EXPECT_EQ(bytes("ps-ssp:staleness=0,fetch=8"), bytes("ps-sync"));
}

TEST(ParameterServer, WithoutACodecTheBytesAreTheClosedForm) {
  const std::uint64_t m = 1000 * sizeof(float), steps = 12;
  Served s{.strategy = "ps-sync", .ranks = 5, .elements = 1000};
  EXPECT_EQ(forecast(s).bytes, 2 * 4 * m * steps) << "co-located: 2(P-1)/P M for each of P ranks";
  EXPECT_NEAR(forecast(s).seconds, 2.0 * 4 / 5 * double(m * steps) / 1e10, 12 * 128 / 1e10);
  s.servers = 2;
  EXPECT_EQ(forecast(s).bytes, 2 * 3 * m * steps) << "dedicated: M up, M down for each of 3 workers";
  EXPECT_NEAR(forecast(s).seconds, 3.0 / 2 * double(m * steps) / 1e10, 12 * 192 / 1e10) << "chunks of 512 and 488";
  s.servers = 4;
  EXPECT_NEAR(forecast(s).seconds, double(m * steps) / 1e10, 1e-12) << "the worker's link binds";
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
  // 6.5 MiB: 26 chunks, more than the port may have on its way and a worker unacknowledged.
  const Served s{.strategy = "ps-sync", .ranks = 3, .servers = 1, .steps = each(2), .elements = 1'700'000};
  const auto served = serve(s);
  std::uint64_t bytes = 0, calls = 0;
  for (const Seen& seen : served) bytes += seen.totals.bytes_sent, calls += seen.totals.calls;
  EXPECT_EQ(bytes, forecast(s).bytes);
  EXPECT_EQ(calls, forecast(s).messages);
  EXPECT_EQ(forecast(s).messages, 2u * 2 * (2 * 26 + 26));
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
  s.machine.machine = gradmeter::test::linked(1e-6, 1e9, 1e12, s.machine.machine);
  s.flops = 3e7;
  return s;
}

TEST(ParameterServer, WeightsThatAreAskedForAheadTravelUnderTheComputation) {
  const double after = serve(balanced("ps-async"))[0].seconds,
               ahead = serve(balanced("ps-async:prefetch=1"))[0].seconds;
  EXPECT_LT(ahead, 0.85 * after);
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
      const auto evaluated = serve(s);
      for (std::size_t r = 0; r < 3; ++r)
        EXPECT_EQ(evaluated[r].evaluation_weights, evaluated[0].evaluation_weights) << strategy << " " << r;
      EXPECT_EQ(evaluated[0].evaluation_weights.size(), 12u);
      if (s.strategy == "ps-sync") {
        EXPECT_EQ(evaluated[1].evaluation_weights.back(), evaluated[1].weights);
      } else {
        EXPECT_NE(evaluated[1].evaluation_weights.back(), evaluated[1].weights)
            << "the control: theirs are not its own";
      }
    }
  }
}

TEST(ParameterServer, JudgingChangesNothing) {
  Served s{.strategy = "ps-sync", .ranks = 3};
  const auto plain = serve(s);
  s.judge = true;
  const auto evaluated = serve(s);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(evaluated[r].first, plain[r].first);
    EXPECT_EQ(evaluated[r].observed.largest_gap, plain[r].observed.largest_gap);
    EXPECT_EQ(evaluated[r].observed.staleness, plain[r].observed.staleness);
    EXPECT_EQ(evaluated[r].totals.bytes_sent, plain[r].totals.bytes_sent);
    EXPECT_EQ(evaluated[r].totals.calls, plain[r].totals.calls);
  }
  EXPECT_GT(evaluated[0].seconds, plain[0].seconds) << "the control: it did ask";
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
  const auto all = [](const std::vector<Seen>& seen) {  // the last to come has seen the updates of all
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
    EXPECT_EQ(why({.codec = compression::find_codec(row.name)}, 2), "") << row.name << ": all codecs go with messages";
  }
  EXPECT_EQ(why({.optimizer = "sgd:update=bf16"}, 2), "");
  EXPECT_THAT(why({.optimizer = "sgd:update=bf16", .codec = compression::find_codec("qsgd8")}, 2),
              HasSubstr("not in bf16"))
      << "workers add up decoded changes in fp32";
  EXPECT_THROW(find_strategy("ps-async:scale=median"), core::UsageError);
  EXPECT_THROW(find_strategy("ps-async:push=0"), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::dataparallel
