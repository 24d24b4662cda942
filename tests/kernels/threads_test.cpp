// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/threads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "runtime/threads/this_thread.hpp"

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

TEST(Split, ThreadsThatStartLaterFlushSubnormalsLikeTheirCaller) {
  // On a thread of its own, which has a team of its own and takes the mode with it.
  std::vector<float> products(64, 1.0F), control = products;
  const auto multiply = [](std::vector<float>& out) {
    volatile float least = std::numeric_limits<float>::min(), tenth = 0.1F;
    split(out.size(), 16, [&](std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) out[i] = least * tenth;
    });
  };
  std::thread([&] {
    set_compute_threads(4);
    runtime::flush_subnormals();
    multiply(products);
  }).join();
  std::thread([&] {
    set_compute_threads(4);
    multiply(control);
  }).join();
  EXPECT_THAT(products, testing::Each(0.0F));
  EXPECT_THAT(control, testing::Each(testing::Gt(0.0F))) << "the control: without the mode they are numbers";
}

}  // namespace
}  // namespace gradmeter::kernels
