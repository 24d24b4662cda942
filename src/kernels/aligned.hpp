// Memory aligned to cache lines: vector loads never straddle two lines, and threads never share one.
#pragma once
#include <cstddef>
#include <new>
#include <vector>

namespace gradmeter::kernels {

inline constexpr std::size_t cache_line_bytes = 64;

/// Rounded up to whole cache lines.
constexpr std::size_t whole_line_bytes(std::size_t bytes) {
  return (bytes + cache_line_bytes - 1) / cache_line_bytes * cache_line_bytes;
}
/// So many floats as whole cache lines have, at least n.
constexpr std::size_t whole_lines(std::size_t n) { return whole_line_bytes(n * sizeof(float)) / sizeof(float); }

template <class T>
struct CacheLineAllocator {
  using value_type = T;
  CacheLineAllocator() = default;
  template <class U>
  explicit(false) CacheLineAllocator(const CacheLineAllocator<U>&) {}
  T* allocate(std::size_t n) {
    return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{cache_line_bytes}));
  }
  void deallocate(T* p, std::size_t) { ::operator delete (p, std::align_val_t{cache_line_bytes}); }
  bool operator==(const CacheLineAllocator&) const = default;
};

/// A std::vector whose first element is aligned to a cache line.
template <class T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace gradmeter::kernels
