#include "allreduce/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "allreduce/broadcast.hpp"
#include "allreduce/hockney.hpp"
#include "allreduce/recursive_doubling.hpp"
#include "allreduce/registry.hpp"
#include "allreduce/ring.hpp"
#include "allreduce/verify.hpp"
#include "support/broken_schedule.hpp"

namespace gradmeter::allreduce {
namespace {

using test::BrokenSchedule;
using ::testing::HasSubstr;

std::vector<std::uint32_t> rank_counts() {
  std::vector<std::uint32_t> counts;
  for (std::uint32_t p = 1; p <= 64; ++p) counts.push_back(p);
  for (std::uint32_t p : {100u, 127u, 128u, 1000u, 1024u}) counts.push_back(p);
  return counts;
}

TEST(ScheduleContract, EveryAlgorithmIsRightForEveryRankCountItSupports) {
  for (const auto& a : algorithms()) {
    if (a.is_vendor()) continue;
    for (std::uint32_t p : rank_counts()) {
      const Shape shape{p, 1};
      ASSERT_TRUE(a.supports(shape)) << a.name << " supports any number of ranks";
      for (const auto& s : a.make(shape)) {
        const Verdict v = verify(*s);
        EXPECT_EQ(v.fault, "") << a.name << " p " << p;
        EXPECT_TRUE(v.same_bits) << a.name << " p " << p;
      }
    }
  }
}

TEST(ScheduleContract, CountedCostEqualsStatedCost) {
  for (const auto& a : algorithms()) {
    if (a.is_vendor()) continue;
    for (std::uint32_t p : rank_counts()) {
      StatedCost counted;
      const auto schedules = a.make({p, 1});
      for (const auto& s : schedules) {
        const auto cost = verify(*s).cost;
        counted.rounds = std::max(counted.rounds, cost.rounds);
        counted.messages += cost.messages / schedules.size();
        counted.sent_per_rank_max = std::max(counted.sent_per_rank_max, cost.sent_per_rank_max);
      }
      const StatedCost stated = a.cost({p, 1});
      EXPECT_EQ(counted.rounds, stated.rounds) << a.name << " p " << p;
      EXPECT_EQ(counted.messages, stated.messages) << a.name << " p " << p;
      EXPECT_DOUBLE_EQ(counted.sent_per_rank_max, stated.sent_per_rank_max) << a.name << " p " << p;
    }
  }
}

TEST(ScheduleContract, ThePhasesOfTheRingAreCollectivesOfTheirOwn) {
  for (std::uint32_t p : {1u, 2u, 3u, 5u, 8u, 64u}) {
    EXPECT_EQ(verify(*ring_reduce_scatter(p)).fault, "") << p;
    EXPECT_EQ(verify(*ring_all_gather(p)).fault, "") << p;
  }
}

TEST(ScheduleContract, TheBinomialBroadcastReachesEveryRankFromAnyRoot) {
  for (std::uint32_t p : {1u, 2u, 3u, 5u, 8u, 17u, 64u}) {
    for (std::uint32_t root : {0u, p / 2, p - 1}) {
      const Verdict v = verify(*binomial_broadcast(p, root));
      EXPECT_EQ(v.fault, "") << p << " root " << root;
      EXPECT_EQ(v.cost.messages, p - 1);
    }
  }
}

TEST(Hockney, TheRingTakesItsTextbookTime) {
  const Link link{.latency_s = 1e-5, .bytes_per_s = 1e9, .reduce_bytes_per_s = 1e10};
  for (std::uint32_t p : {2u, 4u, 8u}) {
    const std::size_t n = 1 << 20;
    const auto end = hockney_finish_times(*ring(p), n, 4, std::vector<double>(p, 0.0), link);
    const double f = double(p - 1) / p, bytes = 4.0 * double(n);
    EXPECT_NEAR(end[0], 2 * (p - 1) * 1e-5 + 2 * f * bytes / 1e9 + f * bytes / 1e10, 1e-9) << p;
  }
}

TEST(Hockney, ALateRankDelaysTheOthers) {
  const Link link{.latency_s = 0, .bytes_per_s = 1e9, .reduce_bytes_per_s = 1e12};
  std::vector<double> begin(4, 0.0);
  const double together = hockney_finish_times(*ring(4), 4096, 4, begin, link)[0];
  begin[2] = 1.0;
  for (double end : hockney_finish_times(*ring(4), 4096, 4, begin, link)) EXPECT_GE(end, 1.0 + together / 2);
}

std::string fault_of(SchedulePtr inner, BrokenSchedule::Damage damage) {
  return verify(BrokenSchedule(std::move(inner), std::move(damage))).fault;
}

/// Changes one step of rank 2 in round 1.
template <class F>
BrokenSchedule::Damage at_round_1_rank_2(F change) {
  return [change](std::uint32_t round, std::uint32_t rank, Steps& steps) {
    if (round == 1 && rank == 2) change(steps);
  };
}

TEST(Verifier, RejectsALostReceive) {
  EXPECT_THAT(fault_of(ring(5), at_round_1_rank_2([](Steps& s) { s.pop_back(); })), HasSubstr("does not receive"));
}

TEST(Verifier, RejectsALostContribution) {
  EXPECT_THAT(fault_of(ring(5), at_round_1_rank_2([](Steps& s) { s.back().kind = StepKind::recv; })),
              HasSubstr("summands"));
}

TEST(Verifier, RejectsADoubledContribution) {
  EXPECT_THAT(fault_of(recursive_doubling(4),
                       [](std::uint32_t round, std::uint32_t rank, Steps& s) {
                         // Every rank meets its first partner twice.
                         if (round == 1) s[0].peer = s[1].peer = rank ^ 1u;
                       }),
              HasSubstr("summands"));
}

TEST(Verifier, RejectsCrossedBlocks) {
  EXPECT_THAT(fault_of(ring(5), at_round_1_rank_2([](Steps& s) { s[0].blocks.first = (s[0].blocks.first + 1) % 5; })),
              HasSubstr("expects blocks"));
}

TEST(Verifier, RejectsADeadlock) {
  EXPECT_THAT(fault_of(ring(5), at_round_1_rank_2([](Steps& s) { s.erase(s.begin()); })), HasSubstr("deadlock"));
}

TEST(Verifier, RejectsAMissingAndADoubledFinish) {
  auto drop = [](std::uint32_t, std::uint32_t, Steps& s) {
    std::erase_if(s, [](const Step& x) { return x.kind == StepKind::finish; });
  };
  EXPECT_THAT(fault_of(ring(5), drop), HasSubstr("finished 0 times"));
  auto twice = [](std::uint32_t, std::uint32_t, Steps& s) {
    if (!s.empty() && s.back().kind == StepKind::finish) s.push_back(s.back());
  };
  EXPECT_THAT(fault_of(ring(5), twice), HasSubstr("finished 2 times"));
}

TEST(Verifier, RejectsAStepToANonexistentRank) {
  EXPECT_THAT(fault_of(ring(5), at_round_1_rank_2([](Steps& s) { s[0].peer = 5; })), HasSubstr("outside"));
}

TEST(Verifier, NoticesRanksThatSumInDifferentOrders) {
  // Three ranks: 0 sums (0+1)+2 at once; 2 sums 1+(0+2) in two rounds; 1 copies from 0. Right sums, other bits.
  class Uneven final : public FixedSchedule {
   public:
    Uneven() : FixedSchedule(Goal::all_reduce, 3, 1, 2) {}
    void steps(std::uint32_t k, std::uint32_t r, Steps& out) const override {
      using enum StepKind;
      if (k == 0 && r == 0) out = {{send, 2, {}}, {recv_reduce, 1, {}}, {recv_reduce, 2, {}}};
      if (k == 0 && r == 1) out = {{send, 0, {}}};
      if (k == 0 && r == 2) out = {{send, 0, {}}, {recv_reduce, 0, {}}};
      if (k == 1 && r == 0) out = {{send, 1, {}}, {finish, 0, {}}};
      if (k == 1 && r == 1) out = {{send, 2, {}}, {recv, 0, {}}, {finish, 1, {}}};
      if (k == 1 && r == 2) out = {{recv_reduce, 1, {}}, {finish, 2, {}}};
    }
  };
  const Verdict v = verify(Uneven());
  EXPECT_EQ(v.fault, "");
  EXPECT_FALSE(v.same_bits);
}

TEST(Registry, AnUnknownAlgorithmIsRefusedWithTheListOfThoseThatExist) {
  try {
    find_algorithm("swing");
    FAIL() << "accepted";
  } catch (const std::exception& e) {
    EXPECT_THAT(e.what(), HasSubstr("swing"));
    EXPECT_THAT(e.what(), HasSubstr("recursive-doubling"));
  }
}

}  // namespace
}  // namespace gradmeter::allreduce
