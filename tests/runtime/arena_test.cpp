// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/arena.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace gradmeter::runtime {
namespace {

std::size_t address(std::span<const std::byte> s) { return reinterpret_cast<std::size_t>(s.data()); }

TEST(PrivateArena, HandsOutZeroedPagesFrontToBack) {
  PrivateArena arena(100'000);
  const auto a = arena.take(1), b = arena.take(5000), c = arena.take(4096);
  for (const auto s : {a, b, c}) EXPECT_EQ(address(s) % 4096, 0u);
  EXPECT_EQ(address(b), address(a) + 4096);
  EXPECT_EQ(address(c), address(b) + 8192);
  EXPECT_EQ(b.size(), 5000u);
  for (const auto s : {a, b, c}) EXPECT_TRUE(std::all_of(s.begin(), s.end(), [](auto x) { return x == std::byte{}; }));
}

TEST(PrivateArena, BeginsInTheFirstPagesOfAHugePage) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{5} << 20}) {
    const PrivateArena arena(bytes);
    EXPECT_LT(address(arena.memory()) % (2u << 20), 16u * 4096);
    EXPECT_GE(arena.memory().size(), bytes);
  }
}

TEST(PrivateArena, AllOfItCanBeWritten) {
  PrivateArena arena(3'000'001);
  auto all = arena.take(3'000'001);
  std::fill(all.begin(), all.end(), std::byte{7});
  EXPECT_EQ(std::count(all.begin(), all.end(), std::byte{7}), 3'000'001);
}

TEST(PrivateArena, TypedSpansHaveTheirCount) {
  PrivateArena arena(10'000);
  EXPECT_EQ(arena.take_of<double>(100).size(), 100u);
  EXPECT_TRUE(arena.take_of<float>(0).empty());
}

TEST(PrivateArena, GoesBackToAMark) {
  PrivateArena arena(8192);
  (void)arena.take(1);
  const auto mark = arena.mark();
  const auto first = arena.take(4096);
  EXPECT_THROW((void)arena.take(1), core::BackendError);
  arena.rewind(mark);
  EXPECT_EQ(address(arena.take(10)), address(first));
}

TEST(PrivateArena, AFullArenaSaysHowMuchThereIsAndStaysUsable) {
  PrivateArena arena(8192);
  (void)arena.take(4096);
  try {
    (void)arena.take(5000);
    FAIL() << "there is no such memory";
  } catch (const core::BackendError& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("4 KiB of 8 KiB left"));
  }
  EXPECT_EQ(arena.take(4096).size(), 4096u);
}

TEST(PrivateArena, SizesNearTheLargestNumberAreRefusedAndNotWrapped) {
  PrivateArena arena(8192);
  (void)arena.take(4096);
  for (const std::size_t less : {0u, 1u, 4095u, 4096u, 5000u}) {
    EXPECT_THROW((void)arena.take(std::numeric_limits<std::size_t>::max() - less), core::BackendError) << less;
  }
}

}  // namespace
}  // namespace gradmeter::runtime
