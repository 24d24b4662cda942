// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/strategies/gossip.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <tuple>

#include "core/error.hpp"
#include "support/machines.hpp"
#include "support/served.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::each;
using test::Seen;
using test::serve;
using test::Served;

using Matrix = std::vector<std::vector<double>>;

/// W of step t, from 0, row by row.
Matrix mixing(const std::string& graph, int ranks, int t) {
  Matrix w(static_cast<std::size_t>(ranks), std::vector<double>(static_cast<std::size_t>(ranks), 0.0));
  for (int i = 0; i < ranks; ++i) {
    std::vector<int> of{i};
    if (graph == "ring") {
      for (const int j : {(i + 1) % ranks, (i + ranks - 1) % ranks})
        if (std::find(of.begin(), of.end(), j) == of.end()) of.push_back(j);
    } else {
      int levels = 0;
      while (1 << levels < ranks) ++levels;
      if (const int j = ranks > 1 ? i ^ (1 << t % levels) : 1; j < ranks) of.push_back(j);
    }
    for (const int j : of) w[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = 1.0 / double(of.size());
  }
  return w;
}

std::vector<double> product(const Matrix& w, const std::vector<double>& x) {
  std::vector<double> out;
  for (const auto& row : w) out.push_back(std::inner_product(row.begin(), row.end(), x.begin(), 0.0));
  return out;
}

/// Weights of all ranks for element i, by hand: gradients at the weights before they are averaged, or at the averages.
std::vector<double> recurrence(const Served& s, const std::string& graph, std::size_t i, bool before) {
  std::vector<double> x(static_cast<std::size_t>(s.ranks), 1 + 0.01 * double(i % 50));
  for (int t = 0; t < s.steps(0); ++t) {
    const auto mixed = product(mixing(graph, s.ranks, t), x);
    for (std::size_t r = 0; r < x.size(); ++r) {
      const int rank = static_cast<int>(r);
      const double target =
          (double(test::target_of(rank, t, i)) + double(test::target_of(rank, t, i + s.elements))) / 2;
      x[r] = mixed[r] - double(s.step_size) * ((before ? x[r] : mixed[r]) - target);
    }
  }
  return x;
}

TEST(DPsgd, TakesTheGradientAtTheWeightsBeforeTheyAreAveraged) {
  for (const std::string graph : {"ring", "hypercube"}) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      const Served s{.strategy = "d-psgd:graph=" + graph, .ranks = ranks};
      const auto seen = serve(s);
      double off = 0, control = 0;
      for (std::size_t i = 0; i < s.elements; ++i) {
        const auto right = recurrence(s, graph, i, true), wrong = recurrence(s, graph, i, false);
        for (std::size_t r = 0; r < right.size(); ++r) {
          off = std::max(off, std::fabs(double(seen[r].weights[i]) - right[r]));
          control = std::max(control, std::fabs(double(seen[r].weights[i]) - wrong[r]));
        }
      }
      EXPECT_LT(off, 2e-6) << graph << " " << ranks;
      if (ranks > 1) {
        EXPECT_GT(control, 1e-3) << graph << " " << ranks;
      }
    }
  }
}

std::vector<double> mean_weights(const std::vector<Seen>& seen, std::size_t step) {
  std::vector<double> out(seen[0].path[step].size(), 0.0);
  for (const Seen& s : seen) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += double(s.path[step][i]) / double(seen.size());
  }
  return out;
}

double most_apart(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}

/// W keeps the mean of x, so mean(x) <- mean(x) - step mean(g_i(x_i)). Gradients that are linear in x, with the same
/// curvature everywhere, have mean(g_i(x_i)) = mean(g_i)(mean(x)): the mean takes the steps of `sync`, momentum too.
TEST(DPsgd, TheMeanTakesTheStepsOfSyncWhereGradientsAreLinear) {
  for (const char* optimizer : {"sgd", "momentum:mu=0.9"}) {
    for (const char* strategy : {"d-psgd:graph=ring", "d-psgd:graph=hypercube"}) {
      for (const int ranks : {2, 5, 8}) {
        Served s{.strategy = strategy, .ranks = ranks, .optimizer = optimizer, .curvatures = {1, 0.5, 2}, .path = true};
        const auto seen = serve(s);
        s.strategy = "sync";
        const auto sync = serve(s);
        double single = 0;
        for (std::size_t t = 0; t < 12; ++t) {
          const auto together = mean_weights(sync, t);
          EXPECT_LT(most_apart(mean_weights(seen, t), together), 5e-6) << strategy << " " << optimizer << " " << ranks;
          const auto& one = seen[0].path[t];
          single = std::max(single, most_apart({one.begin(), one.end()}, together));
        }
        EXPECT_GT(single, 1e-2) << "the control: one rank alone does not";
      }
    }
  }
}

/// For any model the first gradients are at one x.
TEST(DPsgd, TheMeanIsThatOfSyncAfterOneStepOfAnyModel) {
  for (const int ranks : {2, 3, 4}) {
    const auto far = [&](int steps) {
      test::StrategyRun run{.strategy = "d-psgd", .optimizer = "sgd", .steps = steps, .step_size = 0.2f};
      const auto mine = test::run_workers(ranks, run);
      run.strategy = "sync";
      return test::farthest(mine[0].evaluation_weights, test::run_workers(ranks, run)[0].evaluation_weights);
    };
    EXPECT_LT(far(1), 1e-6) << ranks;
    EXPECT_GT(far(6), 1e-5) << ranks << ": the control: later ones are at others";
  }
}

/// Root of the sum of squares of all ranks' distances from their mean, after a step.
double consensus_distance(const std::vector<Seen>& seen, std::size_t step) {
  const auto centre = mean_weights(seen, step);
  double sum = 0;
  for (const Seen& s : seen) {
    for (std::size_t i = 0; i < centre.size(); ++i) sum += std::pow(double(s.path[step][i]) - centre[i], 2);
  }
  return std::sqrt(sum);
}

/// Three steps that drive the ranks apart, then steps of size 0.
std::vector<Seen> drift_and_mix(const std::string& strategy, int ranks, int steps = 20) {
  return serve({.strategy = strategy,
                .ranks = ranks,
                .steps = each(steps),
                .updates = 3,
                .targets = Served::Targets::resting,
                .path = true});
}

TEST(DPsgd, OnARingRanksComeTogetherByTheSecondEigenvalueOfW) {
  for (const int ranks : {5, 8, 12}) {
    const auto seen = drift_and_mix("d-psgd", ranks);
    const double eigenvalue = 1.0 / 3 + 2.0 / 3 * std::cos(2 * std::numbers::pi / ranks);
    const double rate = std::pow(consensus_distance(seen, 17) / consensus_distance(seen, 9), 1.0 / 8);
    EXPECT_NEAR(rate, eigenvalue, 0.02 * eigenvalue) << ranks;
    EXPECT_LT(most_apart(mean_weights(seen, 19), mean_weights(seen, 2)), 1e-6) << ranks << ": W keeps the mean";
    const auto loose = drift_and_mix("independent", ranks);
    EXPECT_EQ(consensus_distance(loose, 17), consensus_distance(loose, 9)) << "the control";
  }
}

TEST(DPsgd, OnAHypercubePowersOfTwoAgreeAfterOneRoundAndOthersDoNot) {
  // Steps 3, 4 and 5 are one round of three levels.
  for (const int ranks : {8, 6}) {
    const auto seen = drift_and_mix("d-psgd:graph=hypercube", ranks, 40);
    const double early = consensus_distance(seen, 2), late = consensus_distance(seen, 5);
    EXPECT_GT(consensus_distance(seen, 4), 1e-2 * early) << ranks << ": two levels are not enough";
    if (ranks == 8) {
      EXPECT_LT(late, 1e-5 * early);
    } else {
      EXPECT_GT(late, 1e-2 * early);
      EXPECT_LT(consensus_distance(seen, 39), 1e-3 * early) << "but they come together";
    }
    EXPECT_LT(most_apart(mean_weights(seen, 39), mean_weights(seen, 2)), 1e-6) << ranks;
  }
}

TEST(DPsgd, WeightsTravelUnderTheSamePass) {
  Served s{.strategy = "d-psgd", .ranks = 4, .elements = 60'000};
  s.machine.machine = gradmeter::test::linked(1e-6, 1e9, 1e12, s.machine.machine);
  s.flops = 5e7;
  const auto early = serve(s);
  s.overlap = false;
  const auto late = serve(s);
  EXPECT_LT(early[0].seconds, 0.75 * late[0].seconds);
  EXPECT_EQ(early[0].weights, late[0].weights);
}

TEST(DPsgd, SendsTheModelToEachNeighbour) {
  const std::uint64_t m = 200 * sizeof(float);
  for (const auto& [strategy, ranks, messages] :
       {std::tuple{"d-psgd", 2, 12u}, {"d-psgd", 5, 24u}, {"d-psgd:graph=hypercube", 8, 12u}}) {
    for (const Seen& seen : serve({.strategy = strategy, .ranks = ranks}))
      EXPECT_EQ(seen.totals.bytes_sent, messages * m) << strategy << " " << ranks;
  }
}

TEST(DPsgd, AGraphThatItHasNotIsRefused) {
  EXPECT_THROW(find_strategy("d-psgd:graph=random"), core::UsageError);
  EXPECT_THROW(find_strategy("gossip:graph=hypercube"), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::dataparallel
