#include "kernels/threads.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include "core/error.hpp"

namespace gradmeter::kernels {
namespace {

TEST(Threads, AreAtLeastOne) {
  EXPECT_THROW(set_compute_threads(0), core::UsageError);
  EXPECT_THROW(set_compute_threads(-2), core::UsageError);
}

TEST(Threads, BelongToTheCallingThread) {
  set_compute_threads(1);
  int inside = 0;
  std::thread other([&] {
    set_compute_threads(3);
    inside = compute_threads();
  });
  other.join();
  EXPECT_EQ(inside, 3);
  EXPECT_EQ(compute_threads(), 1);
}

struct Part {
  std::size_t first, count;
};

std::vector<Part> parts(std::size_t n, std::size_t grain) {
  std::mutex mutex;
  std::vector<Part> all;
  split(n, grain, [&](std::size_t first, std::size_t count) {
    const std::lock_guard lock(mutex);
    all.push_back({first, count});
  });
  return all;
}

TEST(Split, CoversEachElementOnce) {
  for (const int threads : {1, 2, 3, 7})
    for (const std::size_t n : {0, 1, 15, 16, 17, 100, 1000, 4096})
      for (const std::size_t grain : {0, 1, 16, 50, 10000}) {
        set_compute_threads(threads);
        std::vector<int> seen(n);
        for (const Part& p : parts(n, grain)) {
          EXPECT_EQ(p.first % 16, 0U);
          EXPECT_GT(p.count, 0U);
          for (std::size_t i = p.first; i < p.first + p.count; ++i) ++seen.at(i);
        }
        EXPECT_EQ(seen, std::vector<int>(n, 1)) << threads << " threads, n " << n << ", grain " << grain;
      }
  set_compute_threads(1);
}

TEST(Split, ASmallRangeStaysOnOneThread) {
  set_compute_threads(2);
  EXPECT_EQ(parts(999, 500).size(), 1U);
  EXPECT_EQ(parts(1000, 500).size(), 2U);
  set_compute_threads(1);
  EXPECT_EQ(parts(100000, 1).size(), 1U);
}

}  // namespace
}  // namespace gradmeter::kernels
