// SPDX-License-Identifier: Apache-2.0
// Memory for kernels of the host. It is aligned to cache lines, so that vector loads never straddle two lines and
// threads never share one.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "core/format.hpp"
#include "runtime/host/random_pages.hpp"

namespace gradmeter::kernels {

inline constexpr std::size_t cache_line_bytes = 64;

constexpr std::size_t whole_line_bytes(std::size_t bytes) {
  return (bytes + cache_line_bytes - 1) / cache_line_bytes * cache_line_bytes;
}
/// The number of floats in the whole cache lines that n floats take.
constexpr std::size_t floats_in_whole_lines(std::size_t n) {
  return whole_line_bytes(n * sizeof(float)) / sizeof(float);
}

template <class T>
struct CacheLineAllocator {
  using value_type = T;
  CacheLineAllocator() = default;
  template <class U>
  explicit(false) CacheLineAllocator(const CacheLineAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(runtime::allocate_at_random_page(n * sizeof(T))); }
  void deallocate(T* p, std::size_t) { runtime::free_at_random_page(p); }
  bool operator==(const CacheLineAllocator&) const = default;
};

/// A std::vector whose first element is aligned to a cache line.
template <class T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

// The check that every kernel makes of its buffers.

/// Throws unless a buffer has the right length. Errors: std::invalid_argument, since a wrong length is a mistake of the
/// program: "gemm: c has 5 elements, not 6".
inline void require_elements(std::string_view what, std::size_t have, std::size_t want) {
  if (have != want) throw std::invalid_argument(fmt::format("{} has {} elements, not {}", what, have, want));
}
/// Throws unless a buffer has whole rows; rows without elements are whole only in an empty buffer. Errors:
/// std::invalid_argument.
inline void require_rows(std::string_view what, std::size_t elements, std::size_t width) {
  if (width == 0 ? elements != 0 : elements % width != 0)
    throw std::invalid_argument(fmt::format("{} has {} elements, not whole rows of {}", what, elements, width));
}

}  // namespace gradmeter::kernels
