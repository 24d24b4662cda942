#include "dataparallel/baton.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace gradmeter::dataparallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Log = std::vector<std::pair<int, double>>;

/// Each rank notes its turns and sleeps for the given times in between.
Log turns(const std::vector<std::vector<double>>& sleeps) {
  Baton baton(static_cast<int>(sleeps.size()));
  Log log;
  baton.run([&](int rank) {
    for (const double s : sleeps[static_cast<std::size_t>(rank)]) {
      log.emplace_back(rank, baton.now(rank));
      baton.advance(rank, s);
    }
    log.emplace_back(rank, baton.now(rank));
  });
  return log;
}

TEST(Baton, TheEarliestClockRunsFirstAndTiesGoToTheLowerRank) {
  EXPECT_THAT(turns({{3, 3}, {1, 2}, {2}}), ElementsAre(Pair(0, 0),              //
                                                        Pair(1, 0),              //
                                                        Pair(2, 0),              //
                                                        Pair(1, 1),              //
                                                        Pair(2, 2),              //
                                                        Pair(0, 3), Pair(1, 3),  // a tie
                                                        Pair(0, 6)));
}

TEST(Baton, TheOrderIsTheSameEveryTime) {
  std::vector<std::vector<double>> sleeps(16);
  for (std::size_t r = 0; r < sleeps.size(); ++r) {
    for (std::size_t i = 0; i < 20; ++i) sleeps[r].push_back(double((r * 7 + i * 5) % 11));
  }
  const Log first = turns(sleeps);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(turns(sleeps), first) << "run " << i;
}

TEST(Baton, OneThreadRunsAtATime) {
  Baton baton(8);
  std::atomic<int> running{0}, most{0};
  baton.run([&](int rank) {
    for (int i = 0; i < 50; ++i) {
      most = std::max(most.load(), ++running);
      --running;
      baton.advance(rank, 1.0 + rank);
    }
  });
  EXPECT_EQ(most, 1);
}

TEST(Baton, ABlockedRankSleepsUntilItIsWokenAndItsClockFollows) {
  Baton baton(2);
  double woken_at = 0, second = 0;
  baton.run([&](int rank) {
    if (rank == 0) {
      baton.block(0, "rank 1");
      woken_at = baton.now(0);
      baton.advance(0, 100);
      baton.block(0, "rank 1 again");
      second = baton.now(0);
    } else {
      baton.advance(1, 5);
      baton.wake(0, 7);
      baton.advance(1, 200);
      baton.wake(0, 50);  // earlier than its own clock, which does not go back
    }
  });
  EXPECT_EQ(woken_at, 7);
  EXPECT_EQ(second, 107);
}

TEST(Baton, ADeadlockNamesAllWhoWaitAndForWhat) {
  Baton baton(3);
  try {
    baton.run([&](int rank) {
      if (rank != 1) baton.block(rank, rank == 0 ? "a letter" : "a call");
    });
    FAIL() << "no deadlock was seen";
  } catch (const std::logic_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("deadlock"));
    EXPECT_THAT(e.what(), HasSubstr("rank 0 waits for a letter; rank 2 waits for a call"));
    EXPECT_THAT(e.what(), ::testing::Not(HasSubstr("rank 1")));
  }
}

/// Counts those alive.
struct Guest {
  explicit Guest(std::atomic<int>& n) : count(n) { ++count; }
  ~Guest() { --count; }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;
  std::atomic<int>& count;
};

TEST(Baton, AnExceptionIsRethrownAfterAllThreadsHaveEnded) {
  Baton baton(6);
  std::atomic<int> guests{0}, came{0};
  try {
    baton.run([&](int rank) {
      const Guest guest(guests);
      ++came;
      baton.advance(rank, 1);
      if (rank == 3) throw std::runtime_error("boom");
      if (rank == 4) baton.block(rank, "for ever");
      for (;;) baton.advance(rank, 1);
    });
    FAIL() << "the exception was lost";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "boom");
  }
  EXPECT_EQ(came, 6);
  EXPECT_EQ(guests, 0);
}

TEST(Baton, RunsAgainAfterAFailure) {
  Baton baton(2);
  EXPECT_THROW(baton.run([&](int rank) { baton.block(rank, "nobody"); }), std::logic_error);
  int ran = 0;
  baton.run([&](int rank) {
    baton.advance(rank, 1);
    ++ran;
  });
  EXPECT_EQ(ran, 2);
}

TEST(Baton, ClocksGoOnFromRunToRun) {
  Baton baton(2);
  for (int i = 0; i < 3; ++i) baton.run([&](int rank) { baton.advance(rank, 1.0 + rank); });
  EXPECT_EQ(baton.now(0), 3);
  EXPECT_EQ(baton.now(1), 6);
}

}  // namespace
}  // namespace gradmeter::dataparallel
