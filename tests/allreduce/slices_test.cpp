#include "allreduce/slices.hpp"

#include <gtest/gtest.h>

#include "allreduce/ring.hpp"

namespace gradmeter::allreduce {
namespace {

TEST(Slices, CoverTheBufferOnceWhateverItsLength) {
  for (std::size_t n : {0u, 1u, 15u, 16u, 17u, 1000u, 65536u, 100003u}) {
    for (std::uint32_t blocks : {1u, 2u, 3u, 7u}) {
      const Slices s = cut(n, 4, blocks, 4096);
      std::size_t covered = 0;
      for (std::size_t i = 0; i < s.count; ++i) {
        EXPECT_EQ(s.begin(i), covered);
        covered += s.length(i, n);
      }
      EXPECT_EQ(covered, n);
      EXPECT_GE(s.count, 1u);
    }
  }
}

TEST(Slices, AMessageIsAboutAsLongAsAskedFor) {
  const Slices s = cut(std::size_t{16} << 20, 4, 4, 256 << 10);
  EXPECT_LE(s.elements * 4 / 4, (256u << 10) + 64u);
  EXPECT_GE(s.elements * 4 / 4, 128u << 10);
}

TEST(Blocks, AreNearlyEqualAndCoverTheSlice) {
  for (std::size_t n : {0u, 1u, 5u, 63u, 64u, 1000u, 4097u}) {
    for (std::uint32_t blocks : {1u, 2u, 3u, 8u}) {
      EXPECT_EQ(block_begin(n, blocks, 0), 0u);
      EXPECT_EQ(block_begin(n, blocks, blocks), n);
      for (std::uint32_t b = 0; b < blocks; ++b) {
        const auto length = block_begin(n, blocks, b + 1) - block_begin(n, blocks, b);
        EXPECT_LE(length, n / blocks + 32) << n << " " << blocks << " " << b;
      }
    }
  }
}

TEST(PayloadBytes, OfTheRingAreItsClosedForm) {
  const auto s = ring(4);
  // 1024 elements in 4 blocks of 256: each rank sends 6 of them.
  EXPECT_EQ(payload_bytes(*s, 0, 1024, 4, {1, 1024}), 6u * 256 * 4);
  EXPECT_EQ(payload_bytes(*s, 0, 0, 4, {1, 0}), 0u);
  // In slices: the same bytes when the slices divide evenly.
  EXPECT_EQ(payload_bytes(*s, 1, 2048, 4, {2, 1024}), 2u * 6 * 256 * 4);
}

TEST(PayloadBytes, DoNotOverflowAboveTwoToThe31) {
  const std::size_t n = std::size_t{3} << 30;
  EXPECT_EQ(payload_bytes(*ring(2), 0, n, 4, {1, n}), 2 * (n / 2) * 4);
}

}  // namespace
}  // namespace gradmeter::allreduce
