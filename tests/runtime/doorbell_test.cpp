// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shared_memory_transport.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/clock.hpp"

namespace gradmeter::runtime {
namespace {

constexpr double for_ever = 1e6;  ///< a sleep of this length is a hang [s]

/// Two ranks' doorbells in one page, which each rank has at an address of its own, as two processes have it.
class Doorbells : public ::testing::Test {
 protected:
  Doorbells() : file_(memfd_create("doorbells", 0)) {
    EXPECT_EQ(ftruncate(file_, bytes), 0);
    for (void*& v : views_) v = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  }
  ~Doorbells() override {
    for (void* v : views_) munmap(v, bytes);
    close(file_);
  }
  /// As that rank sees it.
  Doorbell& of(std::size_t owner, std::size_t viewer) { return static_cast<Doorbell*>(views_[viewer])[owner]; }

 private:
  static constexpr std::size_t bytes = 4096;
  int file_;
  std::array<void*, 2> views_{};
};

/// Does that thread of this process sleep? False where nobody says so.
bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t end = line.rfind(") ");
  return end != std::string::npos && line.compare(end + 2, 1, "S") == 0;
}

TEST_F(Doorbells, ARingBeforeTheSleepIsNotLost) {
  Doorbell &own = of(0, 0), &others = of(0, 1);
  const std::uint32_t seen = own.rings();
  own.arm(true);
  others.ring();
  own.sleep(seen, for_ever);
  EXPECT_EQ(own.rings(), seen + 1);
}

TEST_F(Doorbells, OnlyAnArmedOneRings) {
  Doorbell &own = of(0, 0), &others = of(0, 1), &neighbour = of(1, 1);
  others.ring();
  EXPECT_EQ(own.rings(), 0u);
  own.arm(true);
  neighbour.ring();
  EXPECT_EQ(own.rings(), 0u);
  others.ring();
  others.ring();
  EXPECT_EQ(own.rings(), 2u);
  own.arm(false);
  others.ring();
  EXPECT_EQ(own.rings(), 2u);
  others.wake();
  EXPECT_EQ(own.rings(), 3u);
}

TEST_F(Doorbells, ASleeperIsWokenThroughAnotherMapping) {
  for (const bool armed : {true, false}) {
    std::atomic<pid_t> sleeper{0};
    std::thread thread([&] {
      Doorbell& own = of(0, 0);
      own.arm(armed);
      const std::uint32_t seen = own.rings();
      sleeper = gettid();
      sleeper.notify_one();
      while (own.rings() == seen) own.sleep(seen, for_ever);
    });
    sleeper.wait(0);
    // Where it is not asleep yet it needs no wake-up, which this is about: so it gets some time.
    for (int i = 0; i < 10'000 && !is_asleep(sleeper); ++i) std::this_thread::yield();
    Doorbell& others = of(0, 1);
    armed ? others.ring() : others.wake();
    thread.join();
  }
}

TEST_F(Doorbells, ALimitEndsASleepThatNobodyEnds) {
  Doorbell& own = of(0, 0);
  own.arm(true);
  const double begin = host_clock();
  int sleeps = 0;
  for (; host_clock() < begin + 0.02; ++sleeps) own.sleep(own.rings(), 0.01);
  EXPECT_LT(sleeps, 100) << "a slow machine only makes them fewer";
  EXPECT_EQ(own.rings(), 0u);
}

/// Each waits until the other has had its turn: a ring that is lost in between ends them both.
TEST_F(Doorbells, NoneOfManyTurnsIsLost) {
  constexpr int turns = 20'000;
  std::atomic<int> turn{0};
  const auto rank = [&](std::size_t me) {
    Doorbell &own = of(me, me), &others = of(1 - me, me);
    for (int mine = static_cast<int>(me); mine < turns; mine += 2) {
      while (turn.load(std::memory_order_acquire) != mine) {
        const std::uint32_t seen = own.rings();
        own.arm(true);
        if (turn.load(std::memory_order_acquire) != mine) own.sleep(seen, for_ever);
        own.arm(false);
      }
      turn.store(mine + 1, std::memory_order_release);
      others.ring();
    }
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  EXPECT_EQ(turn, turns);
}

}  // namespace
}  // namespace gradmeter::runtime
