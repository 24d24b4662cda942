// SPDX-License-Identifier: Apache-2.0
// The staleness of gradients that servers apply: counted, bounded, and its effect on stability.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "core/format.hpp"
#include "support/sanitized.hpp"
#include "support/served.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::each;
using test::sanitized;
using test::Seen;
using test::serve;
using test::Served;
using test::uneven;

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

TEST(ParameterServer, AnUpdateCountsOnceHoweverManyServersTakeTheirPartOfIt) {
  for (const int servers : {0, 1, 3}) {
    for (const auto& [strategy, each_of] : {std::pair{"ps-sync", 12u},
                                            {"ps-async", 12u},
                                            {"ps-async:push=3", 4u},
                                            {"ps-ssp", 12u},
                                            {"easgd:every=2", 6u}}) {
      Served s{.strategy = strategy, .ranks = 3 + servers, .servers = servers, .elements = 500};
      std::uint64_t updates = 0, shards = 0;
      for (const Seen& seen : serve(s)) {
        updates += seen.observed.updates;
        shards += !seen.observed.staleness.empty();
      }
      EXPECT_EQ(updates, 3 * each_of) << strategy << " " << servers;
      EXPECT_EQ(shards, servers > 0 ? servers : 3u) << "the control: so many have taken some";
    }
  }
}

TEST(ParameterServer, TheStalenessBoundHoldsExactlyAndIsReached) {
  for (const std::uint64_t bound : {0u, 1u, 2u, 5u}) {
    for (const auto* more : {"", ",prefetch=1", ",fetch=8", ",fetch=3", ",fetch=4,push=2", ",fetch=8,prefetch=1"}) {
      Served s{.strategy = fmt::format("ps-ssp:staleness={}{}", bound, more), .ranks = 4, .steps = each(30)};
      s.machine.slowdown = [](int rank, std::uint64_t) { return rank == 3 ? 10.0 : 1.0; };
      std::uint64_t gap = 0, staleness = 0;
      double held = 0;
      for (const Seen& seen : serve(s)) {
        gap = std::max(gap, seen.observed.largest_gap);
        held += seen.observed.read_wait_s;
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

}  // namespace
}  // namespace gradmeter::dataparallel
