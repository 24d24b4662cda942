// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/decorators/checksums.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace gradmeter::dataparallel {
namespace {

std::vector<float> random_values(int rank, std::size_t n) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = std::sin(0.37f * float(i % 9973) + 1.7f * float(rank));
  return v;
}

TEST(Projection, AddsUpAsTheVectorsDo) {
  const auto a = random_values(0, 1003), b = random_values(1, 1003);
  std::vector<float> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  EXPECT_NEAR(project(sum, 7).product, project(a, 7).product + project(b, 7).product, 1e-5);
  EXPECT_NE(project(a, 7).product, project(a, 8).product);
}

TEST(Projection, PartsOfAVectorAddUpToIt) {
  const auto a = random_values(0, 1003);
  const std::span<const float> all = a;
  const auto first = project(all.first(500), 7), last = project(all.subspan(500), 7, 500);
  const auto whole = project(all, 7);
  EXPECT_NEAR(first.product + last.product, whole.product, 1e-12);
  EXPECT_NEAR(first.square + last.square, whole.square, 1e-12);
}

TEST(Projection, AnErrorAnywhereShowsByHalfItsSizeAtLeast) {
  auto a = random_values(0, 997);
  const double right = project(a, 7).product;
  for (float& v : a) {
    const float before = std::exchange(v, v + 1);
    const double off = std::fabs(project(a, 7).product - right);
    EXPECT_GE(off, 0.499);
    EXPECT_LT(off, 1.001);
    v = before;
  }
}

TEST(Projection, ElementsThatChangePlacesShow) {
  auto a = random_values(0, 997);
  const double right = project(a, 7).product;
  for (std::size_t i = 0; i + 1 < a.size(); ++i) {
    std::swap(a[i], a[i + 1]);
    EXPECT_GT(std::fabs(project(a, 7).product - right), 1e-7 * std::fabs(a[i] - a[i + 1]));
    std::swap(a[i], a[i + 1]);
  }
}

TEST(LinearHash, PartsAddUpAndEveryBitCounts) {
  auto a = random_values(0, 103);
  const auto bytes = std::as_bytes(std::span(a));
  const auto whole = linear_hash(bytes, 3);
  EXPECT_EQ(linear_hash(bytes.first(40), 3) + linear_hash(bytes.subspan(40), 3, 10), whole);
  EXPECT_NE(linear_hash(bytes, 4), whole);
  const auto writable = std::as_writable_bytes(std::span(a));
  for (std::size_t bit = 0; bit < 8 * writable.size(); ++bit) {
    writable[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_NE(linear_hash(bytes, 3), whole) << bit;
    writable[bit / 8] ^= std::byte(1 << bit % 8);
  }
  EXPECT_NE(linear_hash(bytes.first(41), 3), linear_hash(bytes.first(42), 3)) << "the rest of a word counts";
}

}  // namespace
}  // namespace gradmeter::dataparallel
