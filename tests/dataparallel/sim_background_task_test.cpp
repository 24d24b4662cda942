// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "core/error.hpp"
#include "support/sim_machine.hpp"
#include "support/sim_messages.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::slow_machine;
using test::write;
using ::testing::Each;
using ::testing::ElementsAre;

TEST(SimBackgroundTask, RunsBesideItsWorkerFromTheLaunchOn) {
  const auto end = SimWorld(2, slow_machine()).run([](Fabric& f) {
    f.submit("before", {.flops = 10}, [] {});
    double began = -1;
    const int worker = f.rank();
    const auto background = f.launch([&](ExecutionContext& mine) {
      began = mine.now();
      EXPECT_EQ(mine.rank(), worker);
      EXPECT_EQ(mine.size(), 2);
      EXPECT_EQ(mine.record(), nullptr);
      mine.synchronise();
      mine.submit("serve", {.flops = 100}, [] {});
      EXPECT_EQ(mine.now(), 110);
    });
    f.submit("work", {.flops = worker == 0 ? 30.0 : 300.0}, [] {});
    EXPECT_EQ(f.now(), worker == 0 ? 40 : 310) << "it takes none of the worker's time";
    background->join();
    EXPECT_EQ(began, 10);
  });
  EXPECT_THAT(end, ElementsAre(110, 310)) << "whoever joins comes out after both";
}

TEST(SimBackgroundTask, LogsItsOwnComputations) {
  SimWorld(1, slow_machine()).run([](Fabric& f) {
    ComputeLog ours, its;
    f.log_to(&ours);
    const auto background = f.launch([&](ExecutionContext& mine) {
      mine.log_to(&its);
      mine.submit("serve", {.flops = 3}, [] {});
      mine.log_to(nullptr);
    });
    background->join();
    EXPECT_TRUE(ours.empty());
    ASSERT_EQ(its.size(), 1u);
    EXPECT_EQ(its[0].label, "serve");
    EXPECT_EQ(its[0].when.end, 3);
    f.log_to(nullptr);
  });
}

TEST(SimBackgroundTask, WhatItThrowsComesOutOfJoin) {
  SimWorld(1, slow_machine()).run([](Fabric& f) {
    const auto background = f.launch([](ExecutionContext& mine) {
      mine.submit("serve", {.flops = 3}, [] {});
      throw core::WrongResult("as expected");
    });
    EXPECT_THROW(background->join(), core::WrongResult);
    EXPECT_EQ(f.now(), 3);
  });
}

TEST(SimBackgroundTask, WhatItThrowsExplainsAWorkerThatWaitsForItInVain) {
  EXPECT_THROW(SimWorld(2, slow_machine()).run([](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    const auto background = f.launch([](ExecutionContext&) { throw core::WrongResult("as expected"); });
    (void)ports.worker->next("an answer");
  }),
               core::WrongResult);
}

TEST(SimBackgroundTask, SlowServersAreSlowedAndWorkersAreNot) {
  SimMachine m = slow_machine();
  m.slowdown = [](int rank, std::uint64_t) { return rank == 0 ? 2.0 : 1.0; };
  m.background_slowdown = [](int rank, std::uint64_t n) { return rank == 1 && n == 1 ? 5.0 : 1.0; };
  std::vector<double> served(2);
  const auto end = SimWorld(2, m).run([&](Fabric& f) {
    const auto background = f.launch([&](ExecutionContext& mine) {
      for (int i = 0; i < 2; ++i) mine.submit("serve", {.flops = 1}, [] {});
      served[static_cast<std::size_t>(mine.rank())] = mine.now();
    });
    f.submit("work", {.flops = 10}, [] {});
    background->join();
  });
  EXPECT_THAT(served, ElementsAre(2, 6));
  EXPECT_THAT(end, ElementsAre(20, 10));
}

TEST(SimBackgroundTask, EndsWhenItsMailHasLeft) {
  const auto end = SimWorld(2, slow_machine()).run([](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    if (f.rank() == 1) return;
    Ticket last;
    const auto background = f.launch([&](ExecutionContext&) { last = write(*ports.server, 1, {.bytes = 12}); });
    EXPECT_FALSE(last && last->done());
    background->join();
    EXPECT_TRUE(last->done());
  });
  EXPECT_THAT(end, ElementsAre(100, 0));
}

/// Counts those alive.
struct Guest {
  explicit Guest(std::atomic<int>& n) : count(n) { ++count; }
  ~Guest() { --count; }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;
  std::atomic<int>& count;
};

TEST(SimBackgroundTask, IsGoneBeforeWhatItUsesIs) {
  // Rank 1 fails while every rank's background task sleeps; each uses something of its worker's.
  std::atomic<int> guests{0};
  EXPECT_THROW(SimWorld(4, slow_machine()).run([&](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    std::vector<int> local(1000, 7);
    const auto background = f.launch([&](ExecutionContext&) {
      const Guest guest(guests);
      try {
        (void)ports.server->next("a push");
      } catch (...) {
        EXPECT_THAT(local, Each(7));
        throw;
      }
    });
    f.submit("work", {.flops = 10.0 + f.rank()}, [] {});
    if (f.rank() == 1) throw core::WrongResult("as expected");
    (void)ports.worker->next("an answer");
  }),
               core::WrongResult);
  EXPECT_EQ(guests, 0);
}

TEST(SimBackgroundTask, ThatNobodyJoinsIsEnded) {
  std::atomic<int> guests{0};
  const auto end = SimWorld(2, slow_machine()).run([&](Fabric& f) {
    const Ports ports = f.open(everybody, {});
    const auto background = f.launch([&](ExecutionContext&) {
      const Guest guest(guests);
      (void)ports.server->next("a push");
      ADD_FAILURE() << "nobody wrote";
    });
    f.submit("work", {.flops = 5}, [] {});
    EXPECT_GE(guests, 1);  // the other may be over
  });
  EXPECT_EQ(guests, 0);
  EXPECT_THAT(end, Each(5));
}

TEST(SimMemory, IsZeroedAndStaysWhereItIs) {
  SimWorld(2, slow_machine()).run([](Fabric& f) {
    const auto a = f.memory(100).values<float>(), none = f.memory(0).values<float>();
    EXPECT_THAT(a, Each(0.0f));
    EXPECT_TRUE(none.empty());
    std::fill(a.begin(), a.end(), 3.0f + float(f.rank()));
    const auto b = f.memory(1 << 16).values<float>();
    EXPECT_THAT(b.first(10), Each(0.0f));
    const auto background = f.launch([&](ExecutionContext&) { a[1] = 9; });
    background->join();
    f.wait(f.all_reduce(everybody, a, allreduce::Op::sum));
    EXPECT_EQ(a[0], 7);
    EXPECT_EQ(a[1], 18);
  });
}

}  // namespace
}  // namespace gradmeter::dataparallel
