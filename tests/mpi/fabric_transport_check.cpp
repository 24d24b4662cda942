// SPDX-License-Identifier: Apache-2.0
// What the fabric of real ranks does whatever the all-reduce: broadcasts, messages, groups, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "core/error.hpp"
#include "mpi/fabric_site.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::Op;
using test::longest;
using test::Site;
using test::text;
using test::usual;
using test::value_at;
using test::wrong_sum;

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
      EXPECT_EQ(ticket->completion().bytes_sent, ticket->completion().bytes_required);
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
    EXPECT_EQ(sends[i]->completion().bytes_required, 4 * lengths[i]);
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
  site_.fabric.submit("forward.gemm", {}, [&] {
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

}  // namespace
}  // namespace gradmeter::dataparallel
