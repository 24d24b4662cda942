// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/random_pages.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <set>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/transport/arena.hpp"

namespace gradmeter::runtime {
namespace {

std::size_t address(const void* p) { return reinterpret_cast<std::size_t>(p); }

// What is freed and taken again has the allocator's same memory, but begins elsewhere in it. The larger size is one
// that malloc maps anew each time, from the top of a hole down.
TEST(Placement, BuffersTakenAgainBeginAtOtherPages) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer is to see what is written in front of a buffer";
#endif
  for (std::size_t bytes : {200'000, 40'000'000}) {
    std::set<std::size_t> buffers, of_device, arenas;
    for (int i = 0; i < 40; ++i) {
      void* const b = allocate_at_random_page(bytes);
      buffers.insert(address(b) / 4096 % 16);
      free_at_random_page(b);
      of_device.insert(address(host_device().allocate(core::Element::f32, bytes / 4).buffer.host()) / 4096 % 16);
      arenas.insert(address(PrivateArena(bytes).memory().data()) / 4096 % 16);
    }
    // 40 draws miss a page of 16 with probability 0.076: nine pages at once never.
    EXPECT_GE(buffers.size(), 8u) << bytes;
    EXPECT_GE(of_device.size(), 8u) << bytes;
    EXPECT_GE(arenas.size(), 8u) << bytes;
  }
}

TEST(Placement, WastesNoMoreThanABufferHas) {
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(draw_page_offset(4095), 0u);
    EXPECT_EQ(draw_page_offset(0), 0u);
    EXPECT_LE(draw_page_offset(3 * 4096), 2u * 4096);
    EXPECT_LE(draw_page_offset(std::size_t{1} << 40), 15u * 4096);
  }
}

TEST(Placement, BuffersAreAlignedAndTheirOwn) {
  std::vector<void*> all;
  for (std::size_t bytes : {0, 1, 63, 64, 4096, 100'000}) {
    all.push_back(allocate_at_random_page(bytes));
    EXPECT_EQ(address(all.back()) % 64, 0u);
    std::memset(all.back(), 0xAB, bytes);
  }
  for (void* b : all) free_at_random_page(b);
  free_at_random_page(nullptr);
}

TEST(Placement, MemoryThatCannotBeIsRefused) { EXPECT_THROW(allocate_at_random_page(SIZE_MAX - 10), std::bad_alloc); }

}  // namespace
}  // namespace gradmeter::runtime
