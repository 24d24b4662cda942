// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/random_pages.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "core/random.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::runtime {
namespace {

constexpr std::align_val_t cache_line{64};
/// Bytes in front of a buffer that hold the address that the allocator gave.
constexpr std::size_t header = 64;

/// The size of the range in which the beginning of a buffer is drawn: a whole number of pages. Under the address
/// sanitizer it is one page, so that no memory of this allocation lies around the buffer and writes outside of it are
/// found.
std::size_t drawn_range(std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr std::size_t most_pages = 1;
#else
  constexpr std::size_t most_pages = 16;
#endif
  return page_bytes * std::clamp(bytes / page_bytes, std::size_t{1}, most_pages);
}

}  // namespace

std::size_t draw_page_offset(std::size_t bytes) {
  thread_local const core::Random random{core::unpredictable_seed(), 0};
  thread_local std::uint64_t drawn = 0;
  return page_bytes * random.below(drawn++, drawn_range(bytes) / page_bytes);
}

void* allocate_at_random_page(std::size_t bytes) {
  // The size of the allocation must not depend on the draw: an allocator that maps each large buffer below the last one
  // would otherwise move it down by as many bytes as the draw moves it up.
  const std::size_t overhead = header + drawn_range(bytes) - page_bytes;
  if (bytes > SIZE_MAX - overhead) throw std::bad_alloc();
  void* const allocated = ::operator new(overhead + bytes, cache_line);
  auto* const buffer = static_cast<std::byte*>(allocated) + header + draw_page_offset(bytes);
  std::memcpy(buffer - sizeof allocated, &allocated, sizeof allocated);
  return buffer;
}

void free_at_random_page(void* buffer) noexcept {
  if (!buffer) return;
  void* allocated = nullptr;
  std::memcpy(&allocated, static_cast<std::byte*>(buffer) - sizeof allocated, sizeof allocated);
  ::operator delete(allocated, cache_line);
}

}  // namespace gradmeter::runtime
