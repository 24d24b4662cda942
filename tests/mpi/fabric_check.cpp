// SPDX-License-Identifier: Apache-2.0
// Collectives of the fabric of real ranks, by every algorithm and transport; its parts for all transports are in
// fabric_transport_check.cpp.
#include "dataparallel/fabric/ranks/rank_fabric.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "core/error.hpp"
#include "mpi/fabric_site.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::Op;
using runtime::Communicator;
using test::bytes_of_all;
using test::fill;
using test::longest;
using test::same_on_all;
using test::Site;
using test::text;
using test::usual;
using test::value_at;
using test::wrong_sum;

using Config = std::tuple<std::string, TransportKind, ProgressMode>;

class EveryFabric : public ::testing::TestWithParam<Config> {
 protected:
  const std::string algorithm_ = std::get<0>(GetParam());
  bool own() const { return !allreduce::find_algorithm(algorithm_)->is_vendor(); }
  Site make_site(std::size_t longest_call) const {
    return Site(algorithm_, std::get<1>(GetParam()), std::get<2>(GetParam()), longest_call);
  }
  Site site_ = make_site(usual);
};

INSTANTIATE_TEST_SUITE_P(Ranks, EveryFabric,
                         ::testing::Combine(::testing::Values("ring", "recursive-doubling", "mpi"),
                                            ::testing::Values(TransportKind::mpi, TransportKind::shm),
                                            ::testing::Values(ProgressMode::on_wait, ProgressMode::thread)),
                         [](const auto& param) {
                           std::string n = std::get<0>(param.param) + "_over_" + text(std::get<1>(param.param)) + "_" +
                                           text(std::get<2>(param.param));
                           std::replace(n.begin(), n.end(), '-', '_');
                           return n;
                         });

TEST_P(EveryFabric, AllReduceGivesEveryRankTheSameRightBitsAndSendsTheStatedBytes) {
  Site site = make_site(longest);
  Fabric& f = site.fabric;
  const auto p = static_cast<std::size_t>(site.size());
  const auto start = site.fabric.arena().mark();
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, p - 1, p + 1, std::size_t{1001}, longest}) {
    for (const bool average : {false, true}) {
      site.fabric.arena().rewind(start);
      const auto v = site.values(n);
      const auto ticket = f.all_reduce(everybody, v, average ? Op::average : Op::sum);
      f.wait(ticket);
      EXPECT_EQ(wrong_sum(v, site.everyone(), average), std::nullopt) << "n " << n << " average " << average;
      const Completion& c = ticket->completion();
      EXPECT_EQ(c.bytes_required.has_value(), own());
      if (own()) {
        EXPECT_EQ(c.bytes_sent, c.bytes_required) << n;
        EXPECT_EQ(c.bytes_between_nodes, 0u);
        EXPECT_TRUE(same_on_all(site.world, v)) << n;
        EXPECT_EQ(std::optional(std::uint64_t(site.world.sum(double(c.bytes_sent)))),
                  bytes_of_all(algorithm_, site.size(), n));
      }
      EXPECT_LE(c.posted, c.started);
      EXPECT_LE(c.started, c.finished);
    }
  }
}

TEST_P(EveryFabric, ManyBucketsAreUnderWayAtOnce) {
  Fabric& f = site_.fabric;
  std::vector<std::span<float>> buckets;
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < 40; ++i) {
    // Values of another "rank" for each bucket: one that lands in another's place shows.
    buckets.push_back(site_.values(1 + (i * 1237) % 20'011, site_.rank() + int(i) * 10));
    tickets.push_back(f.all_reduce(everybody, buckets.back(), i % 2 ? Op::average : Op::sum));
  }
  // The last is waited for first: the others must have gone before it.
  f.wait(tickets.back());
  for (const auto& t : tickets) EXPECT_TRUE(t->done());
  double last_finish = 0;
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    f.wait(tickets[i]);
    EXPECT_GE(tickets[i]->completion().started, last_finish) << "bucket " << i;
    last_finish = tickets[i]->completion().finished;
    std::vector<int> givers = site_.everyone();
    for (int& r : givers) r += int(i) * 10;
    EXPECT_EQ(wrong_sum(buckets[i], givers, i % 2), std::nullopt) << "bucket " << i;
  }
}

TEST_P(EveryFabric, GroupsReduceWithinThemselvesBesideEverybody) {
  Fabric& f = site_.fabric;
  const int color = site_.rank() % 2;
  const Group half = f.split(color, -site_.rank());
  std::vector<int> members;
  for (int r = color; r < site_.size(); r += 2) members.push_back(r);
  EXPECT_EQ(f.size(half), int(members.size()));
  EXPECT_EQ(f.rank(half), int(members.size()) - 1 - site_.rank() / 2);
  EXPECT_EQ(f.size(), site_.size());
  for (int round = 0; round < 3; ++round) {
    const auto mark = site_.fabric.arena().mark();
    const auto a = site_.values(5000), b = site_.values(7001), c = site_.values(3);
    const auto in_half = f.all_reduce(half, a, Op::sum), in_all = f.all_reduce(everybody, b, Op::average),
               again = f.all_reduce(half, c, Op::average);
    for (const auto& t : {in_all, again, in_half}) f.wait(t);
    EXPECT_EQ(wrong_sum(a, members, false), std::nullopt);
    EXPECT_EQ(wrong_sum(b, site_.everyone(), true), std::nullopt);
    EXPECT_EQ(wrong_sum(c, members, true), std::nullopt);
    site_.fabric.arena().rewind(mark);
  }
}

TEST_P(EveryFabric, EveryElementTypeIsSummed) {
  Fabric& f = site_.fabric;
  auto check = [&]<class T>(T) {
    const auto v = site_.fabric.arena().take_of<T>(1001);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<T>(i + 1000 * static_cast<std::size_t>(site_.rank()));
    f.wait(f.all_reduce(everybody, v, Op::sum));
    const auto p = static_cast<std::size_t>(site_.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < v.size(); ++i) wrong += v[i] != static_cast<T>(p * i + 500 * p * (p - 1));
    EXPECT_EQ(wrong, 0u) << core::info(core::element_of<T>).name;
  };
  check(double{});
  check(float{});
  check(std::int32_t{});
  check(std::int64_t{});
}

TEST_P(EveryFabric, MinimumMaximumAndProduct) {
  Fabric& f = site_.fabric;
  const auto low = site_.values(500), high = site_.values(500), product = site_.values(500);
  f.wait(f.all_reduce(everybody, low, Op::min));
  f.wait(f.all_reduce(everybody, high, Op::max));
  f.wait(f.all_reduce(everybody, product, Op::product));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < 500; ++i) {
    float least = value_at(0, i), most = least;
    double all = least;
    for (int r = 1; r < site_.size(); ++r) {
      least = std::min(least, value_at(r, i));
      most = std::max(most, value_at(r, i));
      all *= value_at(r, i);
    }
    wrong += low[i] != least || high[i] != most || std::fabs(product[i] - all) > 1e-6;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST_P(EveryFabric, WithAThreadCallsEndThoughNobodyWaits) {
  if (std::get<2>(GetParam()) == ProgressMode::on_wait) GTEST_SKIP() << "needs the progress thread";
  Site site = make_site(longest);
  Fabric& f = site.fabric;
  const auto v = site.values(longest);
  const auto ticket = f.all_reduce(everybody, v, Op::sum);
  for (int i = 0; i < 20'000 && !ticket->done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(ticket->done());
  f.wait(ticket);
  EXPECT_EQ(wrong_sum(v, site.everyone(), false), std::nullopt);
}

TEST(RankFabric, AutomaticMeansSharedMemoryOnOneNode) {
  const Site site("ring", TransportKind::automatic, ProgressMode::on_wait);
  EXPECT_EQ(site.fabric.transport(), TransportKind::shm);
}

TEST(RankFabric, WithoutAnAlgorithmItTakesTheRing) {
  for (const auto transport : {TransportKind::automatic, TransportKind::mpi}) {
    Site site("", transport, ProgressMode::on_wait);
    const auto v = site.values(1'000);
    Fabric& f = site.fabric;
    const Ticket t = f.all_reduce(everybody, v, Op::sum);
    f.wait(t);
    EXPECT_EQ(wrong_sum(v, site.everyone(), false), std::nullopt);
    EXPECT_EQ(site.world.sum(static_cast<double>(t->completion().bytes_sent)),
              static_cast<double>(*bytes_of_all("ring", site.size(), 1'000)));
    fill(v, site.rank());
    f.wait(f.broadcast(everybody, v, 0));
    EXPECT_EQ(v[9], value_at(0, 9));
  }
}

TEST(RankFabric, HoldsTheMemoryThatItSaysItWill) {
  for (const auto kind : {TransportKind::mpi, TransportKind::shm}) {
    const auto world = runtime::MpiSession::world();
    runtime::Activity activity;
    const RankFabricOptions options{
        .exchange = {.max_bytes = 5'000'000, .algorithm = allreduce::find_algorithm("recursive-doubling")},
        .transport = kind,
        .spin_policy = test::spin_policy_of(world, 1),
        .memory_bytes = 1'000'000};
    RankFabric fabric(world, options, activity);
    const auto stated = RankFabric::resident_bytes(options, world.size());
    EXPECT_LE(fabric.arena().memory().size(), stated + 4096);
    EXPECT_NO_THROW((void)fabric.arena().take(1'000'000)) << "scratch must not eat the models' part";
  }
}

TEST(RankFabric, ComesAndGoesManyTimes) {
  for (int i = 0; i < 10; ++i) {
    Site site("ring", i % 2 ? TransportKind::mpi : TransportKind::shm,
              i % 3 ? ProgressMode::thread : ProgressMode::on_wait);
    const auto v = site.values(100);
    Fabric& f = site.fabric;
    f.wait(f.all_reduce(everybody, v, Op::sum));
    EXPECT_EQ(wrong_sum(v, site.everyone(), false), std::nullopt);
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
