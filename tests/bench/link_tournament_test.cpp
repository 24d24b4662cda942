// SPDX-License-Identifier: Apache-2.0
#include "bench/links/tournament.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "bench/links/links.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Tournament : public testing::TestWithParam<int> {};

TEST_P(Tournament, EveryPairMeetsOnceInRoundsOfDisjointPairs) {
  const int ranks = GetParam();
  std::set<std::pair<int, int>> met;
  for (int round = 0; round < tournament_rounds(ranks); ++round) {
    std::set<int> numbers;
    int idle = 0;
    for (int r = 0; r < ranks; ++r) {
      const int peer = tournament_partner(ranks, round, r);
      idle += peer < 0;
      if (peer < 0) continue;
      ASSERT_NE(peer, r);
      ASSERT_EQ(tournament_partner(ranks, round, peer), r) << "round " << round;
      EXPECT_EQ(tournament_pair(ranks, round, peer), tournament_pair(ranks, round, r));
      if (r > peer) continue;
      EXPECT_TRUE(met.insert({r, peer}).second) << r << " meets " << peer << " again in round " << round;
      EXPECT_TRUE(numbers.insert(tournament_pair(ranks, round, r)).second) << "a pair's number is there twice";
    }
    EXPECT_EQ(idle, ranks % 2);
    EXPECT_EQ(*numbers.begin(), 0);
    EXPECT_EQ(*numbers.rbegin(), ranks / 2 - 1) << "numbers of pairs have no gaps";
  }
  EXPECT_EQ(met.size(), static_cast<std::size_t>(ranks * (ranks - 1) / 2));
}

TEST_P(Tournament, TakesAsFewRoundsAsThereCanBe) {
  const int ranks = GetParam();
  EXPECT_EQ(tournament_rounds(ranks), ranks % 2 == 0 ? ranks - 1 : ranks);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Tournament, testing::Values(2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64, 100));

core::Point link(std::int64_t from, std::int64_t to, double bytes_per_s) {
  core::Point p;
  p.experiment = "links";
  p.factors[Factor::pattern] = std::string("one-way");
  p.factors[Factor::size_bytes] = std::int64_t{65536};
  p.factors[Factor::outstanding] = std::int64_t{16};
  p.factors[Factor::transport] = std::string("mpi");
  p.factors[Factor::ranks] = std::int64_t{2};
  p.factors[Factor::nodes] = std::int64_t{2};
  p.factors[Factor::pairs] = std::int64_t{1};
  p.factors[Factor::from_rank] = from;
  p.factors[Factor::to_rank] = to;
  p.metrics[Metric::from_host] = fmt::format("node{}", from);
  p.metrics[Metric::to_host] = fmt::format("node{}", to);
  p.metrics[Metric::link_bytes_per_s] = bytes_per_s;
  return p;
}

TEST(LinkTables, KeepUnlikeMatricesApart) {
  auto processes = link(0, 1, 11e9), threads = link(0, 1, 22e9);
  processes.factors[Factor::ranks_as] = std::string("processes");
  threads.factors[Factor::ranks_as] = std::string("threads");
  EXPECT_THAT(link_tables(std::vector{processes, threads}),
              AllOf(HasSubstr("· ranks_as=processes\n"), HasSubstr("median 11.0"), HasSubstr("· ranks_as=threads\n"),
                    HasSubstr("median 22.0")));
  EXPECT_THAT(link_tables(std::vector{processes}), Not(HasSubstr("ranks_as")));
}

TEST(LinkTables, KeepRunsApart) {
  const std::vector points{link(0, 1, 11e9), link(1, 0, 12e9), link(0, 1, 22e9), link(1, 0, 23e9)};
  const std::string text = link_tables(points);
  EXPECT_THAT(text, AllOf(HasSubstr("median 11.5"), HasSubstr("· run 2\n"), HasSubstr("median 22.5")));
  EXPECT_THAT(link_tables(std::span(points).first(2)), Not(HasSubstr("run")));
}

TEST(LinkTables, SayHowManySlowGroupsWereNotTraced) {
  core::Point search = link(0, 1, 0);
  search.factors = {};
  search.factors[Factor::pattern] = std::string("groups");
  search.metrics[Metric::group_tests] = std::int64_t{20};
  search.metrics[Metric::slow_ranks] = std::string();
  search.metrics[Metric::lost_groups] = std::int64_t{0};
  EXPECT_THAT(link_tables(std::span(&search, 1)), Not(HasSubstr("traced")));
  search.metrics[Metric::lost_groups] = std::int64_t{1};
  EXPECT_THAT(link_tables(std::span(&search, 1)), HasSubstr("1 slow group was not traced to a rank: measure again\n"));
}

}  // namespace
}  // namespace gradmeter::bench
