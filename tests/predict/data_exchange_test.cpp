// SPDX-License-Identifier: Apache-2.0
#include "predict/data_exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace gradmeter::predict {
namespace {

/// A link of one byte a second, and a second a call.
double all_reduce(double bytes) { return 1 + bytes; }

/// Buckets that leave one after another, each when it is ready.
double shown_in_turn(int buckets, double bytes, double window_s) {
  double now = 0;
  for (int k = 1; k <= buckets; ++k) now = std::max(now, k * window_s / buckets) + all_reduce(bytes / buckets);
  return now - window_s;
}

TEST(DataExchange, BucketsLeaveInTurnWhenTheyAreReady) {
  for (const double window_s : {0.0, 8.0, 60.0, 1000.0})
    for (const int buckets : {1, 2, 4, 50}) {
      const double bytes = 100;
      const auto e =
          data_exchange({.bucket_bytes = static_cast<std::size_t>(bytes) / static_cast<std::size_t>(buckets)}, bytes,
                        window_s, all_reduce);
      EXPECT_NEAR(e.total_s, bytes + buckets, 1e-9);
      EXPECT_NEAR(e.exposed_s, shown_in_turn(buckets, bytes, window_s), 1e-9) << window_s << " s, " << buckets;
    }
  EXPECT_EQ(data_exchange({.bucket_bytes = 0}, 100, 1000, all_reduce).exposed_s, 101) << "all in one wait for the last";
}

TEST(DataExchange, WithoutBucketsOnlyWhatTheWindowIsTooShortForShows) {
  EXPECT_EQ(data_exchange({}, 100, 60, all_reduce).exposed_s, 41);
  EXPECT_EQ(data_exchange({}, 100, 1000, all_reduce).exposed_s, 0);
}

TEST(DataExchange, WeightsAreAveragedOnceInAWhileAndNothingHidesThem) {
  const auto e = data_exchange({.every = 4, .averages_weights = true}, 99, 1000, all_reduce);
  EXPECT_EQ(e.exposed_s, 25);
  EXPECT_EQ(e.total_s, 25);
  EXPECT_EQ(data_exchange({.every = 0}, 99, 0, all_reduce).total_s, 0) << "or never";
}

TEST(DataExchange, AnAlgorithmTakesTheTimeOfItsLinks) {
  const ExchangeLinks node{.ranks = 8, .ranks_per_node = 8, .within_bytes_per_s = 1e9, .reduce_bytes_per_s = 1e15};
  EXPECT_NEAR(all_reduce_seconds("ring", 8e9, node), 14, 0.2);
  ExchangeLinks nodes = node;
  nodes.ranks = 64;
  nodes.between_bytes_per_s = 1e8;
  EXPECT_NEAR(all_reduce_seconds("ring", 8e9, nodes), 8e9 * 2 * 63 / 64 / 1e8, 5) << "the slower links bind a ring";
  EXPECT_GT(all_reduce_seconds("direct", 8e9, nodes), 2 * all_reduce_seconds("ring", 8e9, nodes))
      << "eight ranks send through one port";
  nodes.latency_s = 1e-3;
  nodes.ranks = 4096;
  EXPECT_GT(all_reduce_seconds("ring", 4096, nodes), 10 * all_reduce_seconds("recursive-doubling", 4096, nodes))
      << "a ring has as many rounds as ranks";
}

TEST(DataExchange, ShapesThatAnAlgorithmRefusesHaveAReason) {
  EXPECT_NE(algorithm_refusal("torus2d:rows=3", 16, 8), "");
  EXPECT_EQ(algorithm_refusal("ring", 7, 7), "");
  EXPECT_EQ(algorithm_refusal("torus2d:rows=3", 1, 1), "") << "one rank exchanges nothing";
}

}  // namespace
}  // namespace gradmeter::predict
