// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/intervals.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/random.hpp"

namespace gradmeter::dataparallel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<std::pair<double, double>> pairs(const std::vector<Interval>& intervals) {
  std::vector<std::pair<double, double>> out;
  for (const Interval& i : intervals) out.emplace_back(i.begin, i.end);
  return out;
}

std::vector<Interval> united(std::vector<Interval> intervals) { return unite(intervals); }

TEST(Intervals, AUnionIsSortedAndJoinsWhatTouchesOrOverlaps) {
  EXPECT_THAT(pairs(united({{5, 6}, {1, 3}, {2, 4}, {4, 4.5}})), ElementsAre(Pair(1, 4.5), Pair(5, 6)));
  EXPECT_THAT(pairs(united({{0, 10}, {2, 3}, {9, 9.5}})), ElementsAre(Pair(0, 10)));
}

TEST(Intervals, AUnionDropsTheEmptyAndTheReversed) {
  EXPECT_THAT(pairs(united({{2, 2}, {9, 7}})), IsEmpty());
  EXPECT_THAT(pairs(united({})), IsEmpty());
}

TEST(Intervals, TheTotalCountsNoGap) {
  EXPECT_DOUBLE_EQ(total(united({{0, 1}, {10, 12}})), 3);
  EXPECT_DOUBLE_EQ(total({}), 0);
}

TEST(Intervals, SubtractCutsEdgesAndHoles) {
  const auto a = united({{0, 10}, {20, 30}});
  const auto b = united({{-1, 1}, {3, 4}, {9, 21}, {25, 26}, {29, 40}});
  EXPECT_THAT(pairs(subtract(a, b)), ElementsAre(Pair(1, 3), Pair(4, 9), Pair(21, 25), Pair(26, 29)));
}

TEST(Intervals, SubtractingNothingOrEverythingLeavesAllOrNothing) {
  const auto a = united({{0, 1}, {2, 3}});
  EXPECT_THAT(pairs(subtract(a, {})), ElementsAre(Pair(0, 1), Pair(2, 3)));
  EXPECT_THAT(pairs(subtract(a, united({{-5, 5}}))), IsEmpty());
  EXPECT_THAT(pairs(subtract(a, a)), IsEmpty());
  EXPECT_THAT(pairs(subtract({}, a)), IsEmpty());
}

/// The same by counting whole cells.
constexpr int cells = 64;
using Cells = std::array<bool, cells>;

std::vector<Interval> draw(std::uint64_t seed, Cells& covered) {
  const core::Random random(seed, 0);
  std::vector<Interval> out;
  for (std::uint64_t i = 0; i < 1 + random.below(0, 9); ++i) {
    const auto begin = random.below(2 * i + 1, cells), end = begin + random.below(2 * i + 2, 8);
    out.push_back({double(begin), double(std::min<std::uint64_t>(end, cells))});
    for (auto c = begin; c < std::min<std::uint64_t>(end, cells); ++c) covered[c] = true;
  }
  return out;
}

double count(const Cells& c) { return double(std::count(c.begin(), c.end(), true)); }

TEST(Intervals, UnionAndDifferenceAgreeWithCountingCells) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Cells in_a{}, in_b{}, both{}, only_a{};
    auto a = draw(2 * seed, in_a), b = draw(2 * seed + 1, in_b);
    for (std::size_t i = 0; i < cells; ++i) both[i] = in_a[i] || in_b[i], only_a[i] = in_a[i] && !in_b[i];
    std::vector<Interval> all = a;
    all.insert(all.end(), b.begin(), b.end());
    ASSERT_EQ(total(unite(all)), count(both)) << "seed " << seed;
    ASSERT_EQ(total(subtract(unite(a), unite(b))), count(only_a)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
