#include "dataparallel/strategies/easgd.hpp"

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

TEST(Easgd, TheCentreMovesByWhatTheWorkersGiveUp) {
  // One worker: what it loses the centre gains, so their sum changes by its own gradient steps alone.
  Served s{.strategy = "easgd:every=2,beta=0.5", .ranks = 1, .steps = [](int) { return 2; }, .judge = true};
  const auto elastic = serve(s);
  s.strategy = "independent";
  const auto alone = serve(s);
  const auto start = serve({.strategy = "independent", .ranks = 1, .steps = [](int) { return 0; }});
  for (std::size_t i = 0; i < elastic[0].weights.size(); ++i) {
    EXPECT_EQ(elastic[0].judged[0][i], start[0].weights[i]) << "the centre rests until the first visit";
    EXPECT_NEAR(elastic[0].weights[i] + elastic[0].judged[1][i], alone[0].weights[i] + start[0].weights[i], 1e-6);
    EXPECT_NEAR(elastic[0].judged[1][i] - start[0].weights[i], 0.5 * (alone[0].weights[i] - start[0].weights[i]), 1e-6);
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
