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

TEST(Baton, ASleeperWakesAtItsTimeOrWhenItIsWokenEarlier) {
  Baton baton(2);
  Log log;
  baton.run([&](int rank) {
    if (rank == 0) {
      baton.block(0, "a time", 10);
      log.emplace_back(0, baton.now(0));
      baton.block(0, "a time", 100);
      log.emplace_back(0, baton.now(0));
      baton.block(0, "a time that is past", 5);
      log.emplace_back(0, baton.now(0));
      baton.block(0, "a time", 1000);
      log.emplace_back(0, baton.now(0));
    } else {
      baton.advance(1, 20);
      baton.wake(0, 50);
      baton.wake(0, 40);   // the earliest counts
      baton.wake(0, 200);  // no effect
      baton.advance(1, 500);
      baton.wake(0, 2000);  // nor has one that comes after its own time
    }
  });
  EXPECT_THAT(log, ElementsAre(Pair(0, 10), Pair(0, 40), Pair(0, 40), Pair(0, 1000)));
}

TEST(Baton, SpawnedThreadsStartAtTheirSpawnersNowAndTakeTurns) {
  Baton baton(2);
  Log log;
  baton.run([&](int rank) {
    baton.advance(rank, 5.0 + rank);
    if (rank == 1) return;
    const int other = baton.spawn("a helper", [&] {
      const int me = baton.holder();
      log.emplace_back(me, baton.now(me));
      baton.advance(me, 10);
      log.emplace_back(me, baton.now(me));
      baton.wake(0, baton.now(me));
    });
    EXPECT_EQ(other, 2);
    log.emplace_back(0, baton.now(0));
    baton.advance(0, 7);
    log.emplace_back(0, baton.now(0));
    EXPECT_FALSE(baton.ended(other));
    baton.block(0, "its helper");
    EXPECT_EQ(baton.now(0), 15);
  });
  EXPECT_THAT(log, ElementsAre(Pair(0, 5), Pair(2, 5), Pair(0, 12), Pair(2, 15)));
}

TEST(Baton, ADeadlockNamesSpawnedThreadsAndThoseThatWereStopped) {
  Baton baton(3);
  baton.stop_at(2, 4);
  try {
    baton.run([&](int rank) {
      if (rank == 0) baton.spawn("the server", [&] { baton.block(baton.holder(), "mail"); });
      if (rank == 2) baton.advance(2, 100);
    });
    FAIL() << "no deadlock was seen";
  } catch (const std::logic_error& e) {
    EXPECT_STREQ(e.what(), "deadlock in virtual time: rank 2 died at 4 s; the server waits for mail");
  }
}

TEST(Baton, AThreadIsStoppedAtItsTimeWhateverItDoes) {
  Baton baton(4);
  for (const int r : {0, 1, 2}) baton.stop_at(r, 7);
  std::atomic<int> guests{0};
  std::vector<int> went_on;
  baton.run([&](int rank) {
    const Guest guest(guests);
    if (rank == 0) baton.advance(0, 100);
    if (rank == 1) baton.block(1, "for ever");
    if (rank == 2) baton.block(2, "a later time", 50);
    if (rank == 3) baton.advance(3, 100);
    went_on.push_back(rank);
  });
  EXPECT_EQ(guests, 0);
  EXPECT_THAT(went_on, ElementsAre(3)) << "nobody told it to stop";
  for (const int r : {0, 1, 2}) EXPECT_EQ(baton.now(r), 7);
}

TEST(Baton, ASpawnedThreadIsEndedWhereItSleeps) {
  Baton baton(1);
  std::atomic<int> guests{0};
  bool went_on = false;
  baton.run([&](int) {
    const int other = baton.spawn("a sleeper", [&] {
      const Guest guest(guests);
      baton.block(baton.holder(), "for ever");
      went_on = true;
    });
    baton.advance(0, 10);
    EXPECT_EQ(guests, 1);
    baton.stop(other);
    EXPECT_EQ(guests, 0);
    EXPECT_TRUE(baton.ended(other));
    EXPECT_EQ(baton.now(0), 10);
    baton.stop(other);  // again: nothing
  });
  EXPECT_FALSE(went_on);
}

TEST(Baton, ASuspectIsThrownInsteadOfADeadlock) {
  Baton baton(1);
  EXPECT_THROW(baton.run([&](int) {
    baton.suspect(std::make_exception_ptr(std::out_of_range("its reason")));
    baton.block(0, "somebody who failed");
  }),
               std::out_of_range);
  baton.run([&](int) { baton.suspect(std::make_exception_ptr(std::out_of_range("harmless"))); });
}

}  // namespace
}  // namespace gradmeter::dataparallel
