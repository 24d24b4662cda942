// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/slices.hpp"

#include <gtest/gtest.h>

#include "allreduce/schedule/algorithms.hpp"

namespace gradmeter::allreduce {
namespace {

/// How often each element is in an extent of a slice.
std::vector<int> coverage(const Slices& slices, std::size_t n, std::uint32_t blocks) {
  std::vector<int> seen(n, 0);
  for (std::size_t i = 0; i < slices.count(); ++i) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const Extent e = slices[i].extent({b, 1});
      EXPECT_LE(e.scratch_offset + e.elements, slices.scratch_elements());
      for (std::size_t k = 0; k < e.elements; ++k) ++seen.at(e.offset + k);
    }
  }
  return seen;
}

TEST(Slices, CoverTheBufferOnceWhateverItsLength) {
  for (const auto cut : {SliceCut::run, SliceCut::share_of_each_block}) {
    for (std::size_t n : {0u, 1u, 15u, 16u, 17u, 1000u, 65536u, 100003u}) {
      for (std::uint32_t blocks : {1u, 2u, 3u, 7u}) {
        for (const bool whole : {false, true}) {
          const Slices s(cut, n, 4, blocks, 4096, whole);
          EXPECT_EQ(coverage(s, n, blocks), std::vector<int>(n, 1)) << n << " blocks " << blocks;
          EXPECT_GE(s.count(), 1u);
          EXPECT_TRUE(!whole || s.count() == 1);
        }
      }
    }
  }
}

TEST(Slices, OfEachBlockTakeTheirShareInsideTheBlock) {
  const std::size_t n = 100003;
  const std::uint32_t blocks = 3;
  const Slices s(SliceCut::share_of_each_block, n, 4, blocks, 4096, false);
  ASSERT_GT(s.count(), 2u);
  for (std::size_t i = 0; i < s.count(); ++i) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const Extent e = s[i].extent({b, 1});
      EXPECT_GE(e.offset, block_begin(n, blocks, b));
      EXPECT_LE(e.offset + e.elements, block_begin(n, blocks, b + 1));
    }
  }
}

TEST(Slices, SharesOfASliceDoNotOverlapInScratch) {
  const Slices s(SliceCut::share_of_each_block, 100003, 4, 3, 4096, false);
  for (std::size_t i = 0; i < s.count(); ++i) {
    for (std::uint32_t b = 0; b < 2; ++b) {
      const Extent e = s[i].extent({b, 1}), next = s[i].extent({b + 1, 1});
      EXPECT_LE(e.scratch_offset + e.elements, next.scratch_offset);
    }
  }
}

TEST(Slices, AMessageIsAboutAsLongAsAskedFor) {
  for (const auto cut : {SliceCut::run, SliceCut::share_of_each_block}) {
    const Slices s(cut, std::size_t{16} << 20, 4, 4, 256 << 10, false);
    const std::size_t bytes = s[0].extent({0, 1}).elements * 4;
    EXPECT_LE(bytes, (256u << 10) + 64u);
    EXPECT_GE(bytes, 128u << 10);
  }
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

Slice run_of(std::size_t n, std::uint32_t blocks) {
  return Slices(SliceCut::run, n, sizeof(float), blocks, 0, true)[0];
}

TEST(ElementsSent, OfTheRingAreItsClosedForm) {
  const auto s = ring(4);
  // 1024 elements in 4 blocks of 256: each rank sends 6 of them.
  EXPECT_EQ(elements_sent(*s, 0, run_of(1024, 4)), 6u * 256);
  EXPECT_EQ(elements_sent(*s, 0, run_of(0, 4)), 0u);
}

TEST(ElementsSent, DoNotOverflowAboveTwoToThe31) {
  const std::size_t n = std::size_t{3} << 30;
  EXPECT_EQ(elements_sent(*ring(2), 0, run_of(n, 2)), 2 * (n / 2));
}

TEST(Blocks, AreEqualWhereTheLengthDivides) {
  for (std::size_t n : {24u, 1200u, 60000u}) {
    for (std::uint32_t b = 0; b < 3; ++b) EXPECT_EQ(block_begin(n, 3, b), n / 3 * b);
  }
}

}  // namespace
}  // namespace gradmeter::allreduce
