#include "dataparallel/world/fabric.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "core/error.hpp"
#include "mpi/ranks.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::Op;
using runtime::Communicator;
using test::fill;
using test::same_on_all;
using test::value_at;
using test::wrong_sum;

// Elements. Scratch grows with the longest call, so only the tests that need it ask for it.
constexpr std::size_t usual = 20'011, longest = 300'007;

std::string text(TransportKind t) { return t == TransportKind::shm ? "shm" : t == TransportKind::mpi ? "mpi" : "auto"; }
std::string text(ProgressMode p) { return p == ProgressMode::thread ? "thread" : "on_wait"; }

/// A fabric over all ranks, and what it needs.
struct Site {
  Site(std::string_view algorithm, TransportKind transport, ProgressMode progress, std::size_t longest_call = usual)
      : fabric(world,
               {.algorithm = algorithm.empty() ? nullptr : allreduce::find_algorithm(algorithm),
                .transport = transport,
                .progress = progress,
                .patience = test::patience_of(world, progress == ProgressMode::thread ? 2 : 1),
                .memory_bytes = std::size_t{4} << 20,
                .max_call_bytes = longest_call * sizeof(double)},
               activity) {}
  int rank() const { return world.rank(); }
  int size() const { return world.size(); }
  /// Rank-distinct values in memory that every transport can move.
  std::span<float> values(std::size_t n, int as_rank) {
    const auto v = fabric.arena().take_of<float>(n);
    fill(v, as_rank);
    return v;
  }
  std::span<float> values(std::size_t n) { return values(n, rank()); }
  std::vector<int> everyone() const {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  const Communicator world = Communicator::world();
  runtime::Activity activity;
  WorldFabric fabric;
};

/// Payload of a whole all-reduce of n floats by all ranks together; null for a vendor's.
std::optional<std::uint64_t> bytes_of_all(std::string_view algorithm, int ranks, std::size_t n) {
  const auto p = static_cast<std::uint64_t>(ranks);
  if (algorithm == "ring") return 2 * (p - 1) * n * sizeof(float);
  if (algorithm != "recursive-doubling") return std::nullopt;
  const std::uint64_t power = std::bit_floor(p), extra = p - power;
  return (2 * extra + power * static_cast<std::uint64_t>(std::countr_zero(power))) * n * sizeof(float);
}

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
      EXPECT_EQ(c.bytes_due.has_value(), own());
      if (own()) {
        EXPECT_EQ(c.bytes_sent, c.bytes_due) << n;
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

/// What does not depend on the all-reduce.
class EveryTransport : public ::testing::TestWithParam<std::tuple<TransportKind, ProgressMode>> {
 protected:
  Site make_site(std::size_t longest_call) const {
    return Site("ring", std::get<0>(GetParam()), std::get<1>(GetParam()), longest_call);
  }
  Site site_ = make_site(usual);
};

INSTANTIATE_TEST_SUITE_P(Ranks, EveryTransport,
                         ::testing::Combine(::testing::Values(TransportKind::mpi, TransportKind::shm),
                                            ::testing::Values(ProgressMode::on_wait, ProgressMode::thread)),
                         [](const auto& param) {
                           return text(std::get<0>(param.param)) + "_" + text(std::get<1>(param.param));
                         });

TEST_P(EveryTransport, ABroadcastReachesAllFromEveryRoot) {
  Site site = make_site(longest);
  Fabric& f = site.fabric;
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{1001}, longest}) {
    for (int root = 0; root < site.size(); ++root) {
      const auto mark = site.fabric.arena().mark();
      const auto v = site.values(n);
      const auto ticket = f.broadcast(everybody, v, root);
      f.wait(ticket);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < n; ++i) wrong += v[i] != value_at(root, i);
      EXPECT_EQ(wrong, 0u) << "n " << n << " root " << root;
      EXPECT_EQ(ticket->completion().bytes_sent, ticket->completion().bytes_due);
      EXPECT_EQ(site.world.sum(double(ticket->completion().bytes_sent)), double(4 * n) * (site.size() - 1));
      site.fabric.arena().rewind(mark);
    }
  }
}

TEST_P(EveryTransport, MessagesRoundTheRingArriveInOrder) {
  Fabric& f = site_.fabric;
  const int p = site_.size(), next = (site_.rank() + 1) % p, before = (site_.rank() + p - 1) % p;
  if (p == 1) GTEST_SKIP() << "nobody to send to";
  const std::vector<std::size_t> lengths{5, 0, 70'001, 1, 1, 300, longest, 2, 0, 9};
  std::vector<std::span<float>> out, in;
  std::vector<Ticket> sends, receives;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    out.push_back(site_.values(lengths[i], site_.rank() + 10 * int(i)));
    in.push_back(site_.values(lengths[i], 1000));
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    sends.push_back(f.send(everybody, next, std::span<const float>(out[i])));
    receives.push_back(f.receive(everybody, before, in[i]));
  }
  for (const auto& t : receives) f.wait(t);
  for (const auto& t : sends) f.wait(t);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::size_t wrong = 0;
    for (std::size_t k = 0; k < lengths[i]; ++k) wrong += in[i][k] != value_at(before + 10 * int(i), k);
    EXPECT_EQ(wrong, 0u) << "message " << i;
    EXPECT_EQ(sends[i]->completion().bytes_sent, 4 * lengths[i]);
    EXPECT_EQ(sends[i]->completion().bytes_due, 4 * lengths[i]);
    EXPECT_EQ(receives[i]->completion().bytes_sent, 0u);
  }
}

TEST_P(EveryTransport, MessagesDoNotWaitForCollectives) {
  Fabric& f = site_.fabric;
  const auto v = site_.values(1001);
  const auto word = site_.values(1, 7);
  if (site_.size() == 1) GTEST_SKIP() << "nobody to send to";
  if (site_.rank() == 0) {
    const auto t = f.all_reduce(everybody, v, Op::sum);
    for (int peer = 1; peer < site_.size(); ++peer) f.wait(f.send(everybody, peer, std::span<const float>(word)));
    f.wait(t);
  } else {
    word[0] = 0;
    f.wait(f.receive(everybody, 0, word));  // rank 0 waits in the collective by now
    f.wait(f.all_reduce(everybody, v, Op::sum));
  }
  EXPECT_EQ(word[0], value_at(7, 0));
  EXPECT_EQ(wrong_sum(v, site_.everyone(), false), std::nullopt);
}

TEST_P(EveryTransport, CallsOfTwoGroupsMayBePostedInDifferentOrders) {
  Fabric& f = site_.fabric;
  const Group other = f.split(0, -site_.rank());
  const auto a = site_.values(20'000), b = site_.values(20'000);
  Ticket in_everybody, in_other;
  if (site_.rank() % 2 == 0) {
    in_everybody = f.all_reduce(everybody, a, Op::sum);
    in_other = f.all_reduce(other, b, Op::sum);
    f.wait(in_everybody);
  } else {
    in_other = f.all_reduce(other, b, Op::sum);
    in_everybody = f.all_reduce(everybody, a, Op::sum);
    f.wait(in_other);
  }
  f.wait(in_everybody);
  f.wait(in_other);
  EXPECT_EQ(wrong_sum(a, site_.everyone(), false), std::nullopt);
  EXPECT_EQ(wrong_sum(b, site_.everyone(), false), std::nullopt);
}

TEST_P(EveryTransport, GroupsHaveMessagesAndBroadcastsOfTheirOwn) {
  Fabric& f = site_.fabric;
  const Group g = f.split(site_.rank() % 2, -site_.rank());
  const int p = f.size(g), me = f.rank(g), next = (me + 1) % p, before = (me + p - 1) % p;
  auto world_rank = [&](int r) { return site_.rank() % 2 + 2 * (p - 1 - r); };
  const auto mine = site_.values(100), got = site_.values(100, 1000);
  if (p > 1) {
    const auto sending = f.send(g, next, std::span<const float>(mine));
    f.wait(f.receive(g, before, got));
    f.wait(sending);
    EXPECT_EQ(got[99], value_at(world_rank(before), 99));
  }
  f.wait(f.broadcast(g, mine, p - 1));
  EXPECT_EQ(mine[99], value_at(world_rank(p - 1), 99));
}

TEST_P(EveryTransport, ALateRankHoldsItsPeersUp) {
  using namespace std::chrono_literals;
  const auto v = site_.values(1001);
  Fabric& f = site_.fabric;
  site_.world.barrier();
  if (site_.rank() == site_.size() - 1) std::this_thread::sleep_for(50ms);
  const auto ticket = f.all_reduce(everybody, v, Op::sum);
  f.wait(ticket);
  const double took = ticket->completion().finished - ticket->completion().started;
  const bool waits = site_.size() > 1 && site_.rank() == 0;
  EXPECT_GT(took, waits ? 0.02 : 0.0);
  EXPECT_EQ(wrong_sum(v, site_.everyone(), false), std::nullopt);
}

TEST_P(EveryTransport, ComputationRunsAtOnceAndIsOnTheBoard) {
  bool ran = false;
  site_.fabric.compute("forward.gemm", {}, [&] {
    ran = true;
    EXPECT_STREQ(site_.activity.doing().computing, "forward.gemm");
  });
  EXPECT_TRUE(ran);
  EXPECT_EQ(site_.activity.doing().computing, nullptr);
  EXPECT_EQ(site_.fabric.record(), nullptr);
}

// Wrong use. Each fabric is thrown away afterwards, by all ranks together.

TEST_P(EveryTransport, ABufferLongerThanPromisedIsRefused) {
  Fabric& f = site_.fabric;
  const auto v = site_.fabric.arena().take_of<double>(usual + 1);
  EXPECT_THROW(f.wait(f.all_reduce(everybody, v, Op::sum)), core::BackendError);
}

TEST_P(EveryTransport, AnAverageOfIntegersIsRefused) {
  Fabric& f = site_.fabric;
  const auto v = site_.fabric.arena().take_of<std::int32_t>(4);
  EXPECT_THROW(f.wait(f.all_reduce(everybody, v, Op::average)), core::UsageError);
}

TEST_P(EveryTransport, DeviceMemoryIsRefused) {
  Fabric& f = site_.fabric;
  float pretended = 0;
  const runtime::DeviceSpan<float> device(&pretended, 1);
  EXPECT_THROW((void)f.all_reduce(everybody, device, Op::sum), std::logic_error);
  EXPECT_THROW((void)f.broadcast(everybody, device, 0), std::logic_error);
}

TEST_P(EveryTransport, AnAllReduceOfMemoryThatPeersCannotReadIsRefused) {
  if (std::get<0>(GetParam()) != TransportKind::shm) GTEST_SKIP() << "point to point takes any memory";
  Fabric& f = site_.fabric;
  std::vector<float> heap(100);
  EXPECT_THROW(f.wait(f.all_reduce(everybody, std::span<float>(heap), Op::sum)), core::BackendError);
}

TEST_P(EveryTransport, AMessageFromMemoryThatPeersCannotReadIsRefused) {
  if (std::get<0>(GetParam()) != TransportKind::shm) GTEST_SKIP() << "point to point takes any memory";
  Fabric& f = site_.fabric;
  const std::vector<float> heap(100);
  EXPECT_THROW(f.wait(f.send(everybody, 0, std::span<const float>(heap))), core::BackendError);
}

TEST_P(EveryTransport, AMessageMayLandInAnyMemory) {
  Fabric& f = site_.fabric;
  if (site_.size() == 1) GTEST_SKIP() << "nobody to send to";
  const int p = site_.size(), next = (site_.rank() + 1) % p, before = (site_.rank() + p - 1) % p;
  std::vector<float> heap(1000);
  const auto sending = f.send(everybody, next, std::span<const float>(site_.values(1000)));
  f.wait(f.receive(everybody, before, std::span<float>(heap)));
  f.wait(sending);
  EXPECT_EQ(heap[999], value_at(before, 999));
}

TEST(WorldFabric, AutomaticMeansSharedMemoryOnOneNode) {
  const Site site("ring", TransportKind::automatic, ProgressMode::on_wait);
  EXPECT_EQ(site.fabric.transport(), TransportKind::shm);
}

TEST(WorldFabric, WithoutAnAlgorithmItTakesTheRing) {
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

TEST(WorldFabric, HoldsTheMemoryThatItSaysItWill) {
  for (const auto kind : {TransportKind::mpi, TransportKind::shm}) {
    const auto world = Communicator::world();
    runtime::Activity activity;
    const WorldFabricOptions options{.algorithm = allreduce::find_algorithm("recursive-doubling"),
                                     .transport = kind,
                                     .patience = test::patience_of(world, 1),
                                     .memory_bytes = 1'000'000,
                                     .max_call_bytes = 5'000'000};
    WorldFabric fabric(world, options, activity);
    const auto stated = WorldFabric::resident_bytes(options, world.size());
    EXPECT_LE(fabric.arena().memory().size(), stated + 4096);
    EXPECT_NO_THROW((void)fabric.arena().take(1'000'000)) << "scratch must not eat the models' part";
  }
}

TEST(WorldFabric, ComesAndGoesManyTimes) {
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
