// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/simulation/event_scheduler.hpp"

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
  EventScheduler scheduler(static_cast<int>(sleeps.size()));
  Log log;
  scheduler.run([&](int rank) {
    for (const double s : sleeps[static_cast<std::size_t>(rank)]) {
      log.emplace_back(rank, scheduler.now(rank));
      scheduler.advance(rank, s);
    }
    log.emplace_back(rank, scheduler.now(rank));
  });
  return log;
}

TEST(EventScheduler, TheEarliestClockRunsFirstAndTiesGoToTheLowerRank) {
  EXPECT_THAT(turns({{3, 3}, {1, 2}, {2}}), ElementsAre(Pair(0, 0),              //
                                                        Pair(1, 0),              //
                                                        Pair(2, 0),              //
                                                        Pair(1, 1),              //
                                                        Pair(2, 2),              //
                                                        Pair(0, 3), Pair(1, 3),  // a tie
                                                        Pair(0, 6)));
}

TEST(EventScheduler, TheOrderIsTheSameEveryTime) {
  std::vector<std::vector<double>> sleeps(16);
  for (std::size_t r = 0; r < sleeps.size(); ++r) {
    for (std::size_t i = 0; i < 20; ++i) sleeps[r].push_back(double((r * 7 + i * 5) % 11));
  }
  const Log first = turns(sleeps);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(turns(sleeps), first) << "run " << i;
}

TEST(EventScheduler, OneThreadRunsAtATime) {
  EventScheduler scheduler(8);
  std::atomic<int> running{0}, most{0};
  scheduler.run([&](int rank) {
    for (int i = 0; i < 50; ++i) {
      most = std::max(most.load(), ++running);
      --running;
      scheduler.advance(rank, 1.0 + rank);
    }
  });
  EXPECT_EQ(most, 1);
}

TEST(EventScheduler, ABlockedRankSleepsUntilItIsWokenAndItsClockFollows) {
  EventScheduler scheduler(2);
  double woken_at = 0, second = 0;
  scheduler.run([&](int rank) {
    if (rank == 0) {
      scheduler.block(0, "rank 1");
      woken_at = scheduler.now(0);
      scheduler.advance(0, 100);
      scheduler.block(0, "rank 1 again");
      second = scheduler.now(0);
    } else {
      scheduler.advance(1, 5);
      scheduler.wake(0, 7);
      scheduler.advance(1, 200);
      scheduler.wake(0, 50);  // earlier than its own clock, which does not go back
    }
  });
  EXPECT_EQ(woken_at, 7);
  EXPECT_EQ(second, 107);
}

TEST(EventScheduler, ADeadlockNamesAllWhoWaitAndForWhat) {
  EventScheduler scheduler(3);
  try {
    scheduler.run([&](int rank) {
      if (rank != 1) scheduler.block(rank, rank == 0 ? "a message" : "a call");
    });
    FAIL() << "no deadlock was seen";
  } catch (const std::logic_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("deadlock"));
    EXPECT_THAT(e.what(), HasSubstr("rank 0 waits for a message; rank 2 waits for a call"));
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

TEST(EventScheduler, AnExceptionIsRethrownAfterAllThreadsHaveEnded) {
  EventScheduler scheduler(6);
  std::atomic<int> guests{0}, came{0};
  try {
    scheduler.run([&](int rank) {
      const Guest guest(guests);
      ++came;
      scheduler.advance(rank, 1);
      if (rank == 3) throw std::runtime_error("boom");
      if (rank == 4) scheduler.block(rank, "for ever");
      for (;;) scheduler.advance(rank, 1);
    });
    FAIL() << "the exception was lost";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "boom");
  }
  EXPECT_EQ(came, 6);
  EXPECT_EQ(guests, 0);
}

TEST(EventScheduler, RunsAgainAfterAFailure) {
  EventScheduler scheduler(2);
  EXPECT_THROW(scheduler.run([&](int rank) { scheduler.block(rank, "nobody"); }), std::logic_error);
  int ran = 0;
  scheduler.run([&](int rank) {
    scheduler.advance(rank, 1);
    ++ran;
  });
  EXPECT_EQ(ran, 2);
}

TEST(EventScheduler, ClocksGoOnFromRunToRun) {
  EventScheduler scheduler(2);
  for (int i = 0; i < 3; ++i) scheduler.run([&](int rank) { scheduler.advance(rank, 1.0 + rank); });
  EXPECT_EQ(scheduler.now(0), 3);
  EXPECT_EQ(scheduler.now(1), 6);
}

TEST(EventScheduler, ASleeperWakesAtItsTimeOrWhenItIsWokenEarlier) {
  EventScheduler scheduler(2);
  Log log;
  scheduler.run([&](int rank) {
    if (rank == 0) {
      scheduler.block(0, "a time", 10);
      log.emplace_back(0, scheduler.now(0));
      scheduler.block(0, "a time", 100);
      log.emplace_back(0, scheduler.now(0));
      scheduler.block(0, "a time that is past", 5);
      log.emplace_back(0, scheduler.now(0));
      scheduler.block(0, "a time", 1000);
      log.emplace_back(0, scheduler.now(0));
    } else {
      scheduler.advance(1, 20);
      scheduler.wake(0, 50);
      scheduler.wake(0, 40);   // the earliest counts
      scheduler.wake(0, 200);  // no effect
      scheduler.advance(1, 500);
      scheduler.wake(0, 2000);  // nor has one that comes after its own time
    }
  });
  EXPECT_THAT(log, ElementsAre(Pair(0, 10), Pair(0, 40), Pair(0, 40), Pair(0, 1000)));
}

TEST(EventScheduler, SpawnedThreadsStartAtTheirSpawnersNowAndTakeTurns) {
  EventScheduler scheduler(2);
  Log log;
  scheduler.run([&](int rank) {
    scheduler.advance(rank, 5.0 + rank);
    if (rank == 1) return;
    const int other = scheduler.spawn("a helper", [&] {
      const int me = scheduler.running_thread();
      log.emplace_back(me, scheduler.now(me));
      scheduler.advance(me, 10);
      log.emplace_back(me, scheduler.now(me));
      scheduler.wake(0, scheduler.now(me));
    });
    EXPECT_EQ(other, 2);
    log.emplace_back(0, scheduler.now(0));
    scheduler.advance(0, 7);
    log.emplace_back(0, scheduler.now(0));
    EXPECT_FALSE(scheduler.ended(other));
    scheduler.block(0, "its helper");
    EXPECT_EQ(scheduler.now(0), 15);
  });
  EXPECT_THAT(log, ElementsAre(Pair(0, 5), Pair(2, 5), Pair(0, 12), Pair(2, 15)));
}

TEST(EventScheduler, ADeadlockNamesSpawnedThreadsAndThoseThatWereStopped) {
  EventScheduler scheduler(3);
  scheduler.stop_at(2, 4);
  try {
    scheduler.run([&](int rank) {
      if (rank == 0) scheduler.spawn("the server", [&] { scheduler.block(scheduler.running_thread(), "messages"); });
      if (rank == 2) scheduler.advance(2, 100);
    });
    FAIL() << "no deadlock was seen";
  } catch (const std::logic_error& e) {
    EXPECT_STREQ(e.what(), "deadlock in virtual time: rank 2 died at 4 s; the server waits for messages");
  }
}

TEST(EventScheduler, AThreadIsStoppedAtItsTimeWhateverItDoes) {
  EventScheduler scheduler(4);
  for (const int r : {0, 1, 2}) scheduler.stop_at(r, 7);
  std::atomic<int> guests{0};
  std::vector<int> went_on;
  scheduler.run([&](int rank) {
    const Guest guest(guests);
    if (rank == 0) scheduler.advance(0, 100);
    if (rank == 1) scheduler.block(1, "for ever");
    if (rank == 2) scheduler.block(2, "a later time", 50);
    if (rank == 3) scheduler.advance(3, 100);
    went_on.push_back(rank);
  });
  EXPECT_EQ(guests, 0);
  EXPECT_THAT(went_on, ElementsAre(3)) << "nobody told it to stop";
  for (const int r : {0, 1, 2}) EXPECT_EQ(scheduler.now(r), 7);
}

TEST(EventScheduler, ASpawnedThreadIsEndedWhereItSleeps) {
  EventScheduler scheduler(1);
  std::atomic<int> guests{0};
  bool went_on = false;
  scheduler.run([&](int) {
    const int other = scheduler.spawn("a sleeper", [&] {
      const Guest guest(guests);
      scheduler.block(scheduler.running_thread(), "for ever");
      went_on = true;
    });
    scheduler.advance(0, 10);
    EXPECT_EQ(guests, 1);
    scheduler.stop(other);
    EXPECT_EQ(guests, 0);
    EXPECT_TRUE(scheduler.ended(other));
    EXPECT_EQ(scheduler.now(0), 10);
    scheduler.stop(other);  // again: nothing
  });
  EXPECT_FALSE(went_on);
}

TEST(EventScheduler, ASuspectIsThrownInsteadOfADeadlock) {
  EventScheduler scheduler(1);
  EXPECT_THROW(scheduler.run([&](int) {
    scheduler.suspect(std::make_exception_ptr(std::out_of_range("its reason")));
    scheduler.block(0, "somebody who failed");
  }),
               std::out_of_range);
  scheduler.run([&](int) { scheduler.suspect(std::make_exception_ptr(std::out_of_range("harmless"))); });
}

}  // namespace
}  // namespace gradmeter::dataparallel
