// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/strategy.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "support/served.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::Seen;
using test::serve;
using test::Served;

/// How far the workers' weights are from their mean, at most.
double spread(const std::vector<Seen>& seen) {
  double most = 0;
  for (std::size_t i = 0; i < seen[0].weights.size(); ++i) {
    double mean = 0;
    for (const Seen& s : seen) mean += double(s.weights[i]) / double(seen.size());
    for (const Seen& s : seen) most = std::max(most, std::fabs(double(s.weights[i]) - mean));
  }
  return most;
}

TEST(Easgd, DrawsTheWorkersTogether) {
  Served s{.strategy = "easgd:every=1",
           .ranks = 4,
           .steps = [](int) { return 40; },
           .targets = Served::Targets::resting,
           .own_start = false};
  const double drawn = spread(serve(s));
  s.strategy = "easgd:every=8";
  const double seldom = spread(serve(s));
  s.strategy = "easgd:every=1,beta=0";
  const double loose = spread(serve(s));
  s.strategy = "independent";
  const double apart = spread(serve(s));
  EXPECT_LT(drawn, seldom);
  EXPECT_LT(seldom, apart);
  EXPECT_EQ(loose, apart) << "the control: without the elastic force they do not move";
}

/// Weights of all workers and the centre, after steps of x <- x - step·g(x) - d, c <- c + sum of d, d = alpha (x - c),
/// by hand. at_one_x: d is of the x that the gradient is of; otherwise of what is left after the gradient's step.
struct Elastic {
  std::vector<double> x;
  double c = 0;
};
Elastic recurrence(const Served& s, int every, double alpha, std::size_t i, bool at_one_x) {
  const auto workers = static_cast<std::size_t>(s.ranks - s.servers);
  const double start = 1 + 0.01 * double(i % 50);
  Elastic e{std::vector<double>(workers, start), start};
  for (int t = 0; t < s.steps(0); ++t) {
    double given = 0;
    for (std::size_t r = 0; r < workers; ++r) {
      const int rank = static_cast<int>(r);
      const double target =
          (double(test::target_of(rank, t, i)) + double(test::target_of(rank, t, i + s.elements))) / 2;
      const double moved = e.x[r] - double(s.step_size) * (e.x[r] - target);
      const double d = (t + 1) % every == 0 ? alpha * ((at_one_x ? e.x[r] : moved) - e.c) : 0;
      e.x[r] = moved - d;
      given += d;
    }
    e.c += given;
  }
  return e;
}

TEST(Easgd, TakesTheGradientAndTheElasticTermAtTheSameWeights) {
  // Pulls are two steps apart and workers equally fast, so all pulls of one step see the same centre.
  for (const int workers : {1, 3}) {
    const Served s{.strategy = "easgd:every=2,beta=0.6",
                   .ranks = workers + 1,
                   .servers = 1,
                   .steps = [](int) { return 12; },
                   .judge = true};
    const auto seen = serve(s);
    double off = 0, control = 0;
    for (std::size_t i = 0; i < s.elements; ++i) {
      const Elastic right = recurrence(s, 2, 0.6 / workers, i, true), wrong = recurrence(s, 2, 0.6 / workers, i, false);
      for (std::size_t r = 0; r < right.x.size(); ++r) {
        off = std::max(off, std::fabs(double(seen[r].weights[i]) - right.x[r]));
        control = std::max(control, std::fabs(double(seen[r].weights[i]) - wrong.x[r]));
      }
      off = std::max(off, std::fabs(double(seen[0].evaluation_weights.back()[i]) - right.c));
    }
    EXPECT_LT(off, 2e-6) << workers;
    EXPECT_GT(control, 1e-3) << "the control: one after the other";
  }
}

TEST(Easgd, SendsTheModelTwiceAVisit) {
  for (const int every : {1, 3, 4, 12}) {
    Served s{.strategy = "easgd:every=" + std::to_string(every), .ranks = 4, .servers = 1, .elements = 500};
    std::uint64_t bytes = 0;
    for (const Seen& seen : serve(s)) bytes += seen.totals.bytes_sent;
    EXPECT_EQ(bytes, 3u * 2 * 500 * sizeof(float) * (12u / static_cast<unsigned>(every)));
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
