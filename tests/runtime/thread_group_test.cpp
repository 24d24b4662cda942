// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/thread_group.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "core/error.hpp"
#include "runtime/communicator.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::runtime {
namespace {

class ThreadGroups : public ::testing::TestWithParam<int> {
 protected:
  const int ranks_ = GetParam();
};

TEST_P(ThreadGroups, EveryRankKnowsItselfAndHearsTheOthers) {
  std::atomic<int> ran{0};
  run_thread_ranks(ranks_, [&](const Communicator& c) {
    ++ran;
    EXPECT_EQ(c.size(), ranks_);
    EXPECT_EQ(c.ranks_as(), RanksAs::threads);
    const auto squares = c.all_gather_value(c.rank() * c.rank());
    for (int r = 0; r < ranks_; ++r) EXPECT_EQ(squares[static_cast<std::size_t>(r)], r * r);
    EXPECT_EQ(c.broadcast_value(100 + c.rank(), ranks_ - 1), 100 + ranks_ - 1);
    EXPECT_EQ(c.broadcast_text(c.rank() == 0 ? "from rank 0" : "", 0), "from rank 0");
    EXPECT_EQ(c.gather_value(c.rank()).size(), c.rank() == 0 ? static_cast<std::size_t>(ranks_) : 0u);
    const auto texts = c.all_gather_text(std::string(static_cast<std::size_t>(c.rank()), 'x'));
    for (int r = 0; r < ranks_; ++r) EXPECT_EQ(texts[static_cast<std::size_t>(r)].size(), static_cast<std::size_t>(r));
    EXPECT_EQ(c.max(c.rank()), ranks_ - 1);
    EXPECT_EQ(c.sum(c.rank()), ranks_ * (ranks_ - 1) / 2);
    c.sleeping_barrier();
  });
  EXPECT_EQ(ran, ranks_);
}

TEST_P(ThreadGroups, NobodyPassesABarrierBeforeAllAreThere) {
  std::atomic<int> arrived{0};
  run_thread_ranks(ranks_, [&](const Communicator& c) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      c.barrier();
      EXPECT_GE(arrived, round * ranks_);
      c.barrier();
    }
  });
}

TEST_P(ThreadGroups, ARankThatDoesNotComeIsMissedInTime) {
  run_thread_ranks(ranks_, [&](const Communicator& c) {
    EXPECT_TRUE(c.arrive_within(core::Seconds{60}));
    const Communicator another = c.duplicate();
    if (c.rank() + 1 < c.size() || c.size() == 1) {
      EXPECT_EQ(another.arrive_within(core::Seconds{0.01}), c.size() == 1);
    }
    c.barrier();
  });
}

TEST_P(ThreadGroups, PartsAreGroupsOfTheirOwnInTheOrderOfTheirKeys) {
  run_thread_ranks(ranks_, [&](const Communicator& c) {
    const Communicator part = c.split(c.rank() % 2, -c.rank());
    const int of_my_kind = (ranks_ - c.rank() % 2 + 1) / 2;
    EXPECT_EQ(part.size(), of_my_kind);
    const auto members = part.all_gather_value(c.rank());
    EXPECT_TRUE(std::is_sorted(members.rbegin(), members.rend()));
    const Communicator first = c.split(c.rank() == 0 ? 0 : -1, 0);
    EXPECT_EQ(first.is_null(), c.rank() != 0);
    // Calls of two groups may interleave.
    const Communicator other = c.duplicate();
    EXPECT_EQ(other.sum(1) + part.sum(1), ranks_ + of_my_kind);
  });
}

TEST_P(ThreadGroups, SumsAreAddedInTheOrderOfRecursiveDoubling) {
  // Numbers whose sum depends on the order.
  std::vector<double> given;
  for (int r = 0; r < ranks_; ++r) given.push_back(std::ldexp(1.0 + r, r % 2 ? -40 : 12));
  std::vector<double> sums = given;
  std::size_t power = 1;
  while (2 * power <= sums.size()) power *= 2;
  std::vector<double> left;
  const std::size_t beyond = sums.size() - power;
  for (std::size_t i = 0; i < beyond; ++i) left.push_back(sums[2 * i] + sums[2 * i + 1]);
  left.insert(left.end(), sums.begin() + static_cast<std::ptrdiff_t>(2 * beyond), sums.end());
  while (left.size() > 1) {
    std::vector<double> pairs;
    for (std::size_t i = 0; i < left.size(); i += 2) pairs.push_back(left[i] + left[i + 1]);
    left = pairs;
  }
  run_thread_ranks(ranks_, [&](const Communicator& c) {
    EXPECT_EQ(c.sum(given[static_cast<std::size_t>(c.rank())]), left.front());
  });
}

TEST_P(ThreadGroups, MessagesArriveInTheirOrderAndTextsAreCollected) {
  run_thread_ranks(ranks_, [&](const Communicator& c) {
    const int next = (c.rank() + 1) % ranks_, before = (c.rank() + ranks_ - 1) % ranks_;
    c.send_value(next, c.rank());
    c.send_text(next, "second");
    EXPECT_EQ(c.receive_value<int>(before), before);
    EXPECT_EQ(c.receive_text(before), "second");
    std::vector<std::string> got;
    collect(c, std::to_string(c.rank()), [&](const std::string& text) { got.push_back(text); });
    if (c.rank() != 0) return;
    for (int r = 0; r < ranks_; ++r) EXPECT_EQ(got.at(static_cast<std::size_t>(r)), std::to_string(r));
  });
}

TEST_P(ThreadGroups, AgreementsHoldForThreadsToo) {
  run_thread_ranks(ranks_, [&](const Communicator& c) {
    constexpr std::uint64_t large = 0xfedcba9876543210u;
    EXPECT_TRUE(same_on_all(c, large));
    EXPECT_TRUE(same_on_all(c, {}));
    const bool alone = ranks_ == 1;
    EXPECT_EQ(same_on_all(c, large + static_cast<std::uint64_t>(c.rank())), alone);
    EXPECT_EQ(same_on_all(c, large + (static_cast<std::uint64_t>(c.rank()) << 40)), alone);
    const auto said = first_report(c, c.rank() + 1 == ranks_ ? "the last" : "");
    EXPECT_EQ(said.rank, ranks_ - 1);
    EXPECT_EQ(said.text, "the last");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadGroups, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST(ThreadRanks, AnErrorOfOneEndsTheWaitsOfTheOthersAndIsTheOneThatIsTold) {
  std::atomic<int> ended{0};
  const auto run = [&](auto wait) {
    ended = 0;
    try {
      run_thread_ranks(4, [&](const Communicator& c) {
        if (c.rank() == 2) throw std::runtime_error("rank 2 has had enough");
        try {
          wait(c);
        } catch (const PeerFailed&) {
          ++ended;
          throw;
        }
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "rank 2 has had enough");
    }
    EXPECT_EQ(ended, 3);
  };
  run([](const Communicator& c) { c.barrier(); });
  run([](const Communicator& c) { c.sleeping_barrier(); });
  run([](const Communicator& c) { c.receive_value<int>(2); });
  run([](const Communicator& c) { c.split(0, 0); });
}

// Rank 0 leaves a broadcast, and its data with it, while rank 1 still copies them.
TEST(ThreadRanks, WhoeverLeavesAfterAnErrorOfAnotherTakesNothingThatIsRead) {
  constexpr std::size_t bytes = std::size_t{64} << 20;  // some ten milliseconds; a mapping, which is gone at once
  std::atomic<bool> begun{false};
  const auto run = [&](const Communicator& c) {
    const Communicator pair = c.split(c.rank() / 2, c.rank());
    if (c.rank() == 2) {
      while (!begun) std::this_thread::yield();
      throw std::runtime_error("rank 2 has had enough");
    }
    std::vector<std::byte> data(bytes, std::byte{7});
    pair.barrier();
    if (c.rank() == 1) begun = true;
    pair.broadcast<std::byte>(data, 0);
  };
  EXPECT_THROW(run_thread_ranks(3, run), std::runtime_error);
}

TEST(ThreadRanks, AreBoundToDisjointSharesOfTheCoresWhereThereAreEnough) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  const int cores = CPU_COUNT(&all);
  for (const int ranks : {1, cores, cores + 1}) {
    std::mutex mutex;
    cpu_set_t used;
    CPU_ZERO(&used);
    int bound = 0;
    run_thread_ranks(ranks, [&](const Communicator& c) {
      bind_to_share(c);
      cpu_set_t mine, made;
      EXPECT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
      // A thread that the rank makes is bound as it is.
      std::thread([&] { EXPECT_EQ(sched_getaffinity(0, sizeof made, &made), 0); }).join();
      EXPECT_TRUE(CPU_EQUAL(&mine, &made));
      const std::lock_guard lock(mutex);
      bound += CPU_COUNT(&mine);
      CPU_OR(&used, &used, &mine);
    });
    EXPECT_TRUE(CPU_EQUAL(&used, &all));
    EXPECT_EQ(bound, ranks > cores ? ranks * cores : cores) << ranks << " ranks";
  }
}

TEST(ThreadRanks, WhatOnlyProcessesHaveIsRefusedInALine) {
  EXPECT_THROW(run_thread_ranks(0, [](const Communicator&) {}), core::UsageError);
  EXPECT_FALSE(thread_ranks_running());
  run_thread_ranks(2, [](const Communicator& c) {
    EXPECT_TRUE(thread_ranks_running());
    for (const auto kind : {TransportKind::mpi, TransportKind::hybrid}) {
      EXPECT_THROW(Network(c, {.transport = kind, .memory_bytes = 4096}), core::UsageError);
    }
  });
}

}  // namespace
}  // namespace gradmeter::runtime
