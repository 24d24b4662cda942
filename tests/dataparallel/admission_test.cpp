// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/server/consistency.hpp"

#include <gtest/gtest.h>

#include <random>

namespace gradmeter::dataparallel {
namespace {

TEST(Admission, BulkSynchronousReadsWaitForAllUpdatesOfTheClockBefore) {
  Admission a(3, 0);
  EXPECT_TRUE(a.is_bulk_synchronous());
  EXPECT_TRUE(a.may_read(0, 0, 0));
  a.note_push(0);
  a.note_push(1);
  EXPECT_FALSE(a.may_read(0, 1, 1)) << "worker 2's is missing";
  a.note_push(2);
  EXPECT_TRUE(a.may_read(0, 1, 1));
  EXPECT_FALSE(a.may_read(0, 2, 1));
}

TEST(Admission, StaleSynchronousReadsMaySeeOlderClocksButNotTooOld) {
  Admission a(2, 2);
  EXPECT_FALSE(a.is_bulk_synchronous());
  for (int i = 0; i < 3; ++i) a.note_push(0);
  EXPECT_FALSE(a.may_read(0, 3, 3)) << "needs one update of worker 1";
  EXPECT_EQ(a.gap(3), 3u);
  EXPECT_TRUE(a.may_read(0, 2, 2));
  a.note_push(1);
  EXPECT_TRUE(a.may_read(0, 3, 3));
}

TEST(Admission, AsynchronousReadsWaitForTheReadersOwnUpdatesAlone) {
  Admission a(2, Admission::unbounded);
  EXPECT_FALSE(a.may_read(0, 1, 1));
  a.note_push(0);
  EXPECT_TRUE(a.may_read(0, 1, 1));
  EXPECT_TRUE(a.may_read(0, 1'000'000, 1));
}

TEST(Admission, WhoIsGoneHasAnInfiniteClock) {
  Admission a(3, 0);
  a.note_push(0);
  a.note_gone(1);
  EXPECT_FALSE(a.all_train());
  EXPECT_FALSE(a.may_read(0, 1, 1)) << "worker 2 still trains";
  a.note_gone(2);
  a.note_gone(2);
  EXPECT_EQ(a.training_workers(), 1);
  EXPECT_TRUE(a.may_read(0, 1, 1));
  a.note_gone(0);
  EXPECT_EQ(a.training_workers(), 0);
  EXPECT_EQ(a.slowest_clock(), Admission::unbounded);
}

/// Updates in a random order, worker w about 2^w times as often as worker 0. behind: the read comes so late.
struct Order {
  std::uint64_t sum = 0, updates = 0, outstanding = 0;
};
Order play(int workers, int updates, bool reads_after_own_push, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> weights;
  for (int w = 0; w < workers; ++w) weights.push_back(double(1 << w));
  std::discrete_distribution<int> pick(weights.begin(), weights.end());
  StalenessCount count(workers);
  std::vector<std::uint64_t> base(weights.size(), 0);
  std::uint64_t version = 0;
  for (int i = 0; i < updates; ++i) {
    const int w = pick(random);
    const auto at = static_cast<std::size_t>(w);
    count.applied(base[at], version);
    if (!reads_after_own_push) base[at] = version;  // just missed its own
    ++version;
    if (reads_after_own_push) base[at] = version;
    count.read(w, base[at]);
  }
  Order o{.updates = version, .outstanding = count.outstanding(version)};
  for (std::size_t k = 0; k < count.histogram().size(); ++k) o.sum += k * count.histogram()[k];
  return o;
}

TEST(StalenessCount, AddsUpToTheOtherWorkersForEachUpdateWhateverTheSpeeds) {
  for (const int workers : {1, 2, 3, 5, 7}) {
    for (unsigned seed = 1; seed < 6; ++seed) {
      const Order o = play(workers, 1000, true, seed);
      EXPECT_EQ(o.sum + o.outstanding, static_cast<std::uint64_t>(workers - 1) * o.updates) << workers;
      const Order late = play(workers, 1000, false, seed);
      EXPECT_NE(late.sum + late.outstanding, static_cast<std::uint64_t>(workers - 1) * late.updates) << "the control";
    }
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
