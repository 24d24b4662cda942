// Sums of 16 bytes at a time over several buffers, in their order.
#pragma once
#include <cstddef>

#include "allreduce/cuda/reduce.hpp"
#include "allreduce/cuda/stored.cuh"

namespace gradmeter::allreduce::cuda {

/// What `combined` reads: `of[k]`, `count` and `aligned`.
struct Sources {
  const std::byte* of[most_sources];
  unsigned count;
  bool aligned;  ///< these and the destination, to 16 bytes
};

/// What a thread reads at once: 16 bytes.
template <class T>
struct alignas(16) Pack {
  static constexpr std::size_t count = 16 / sizeof(T);
  T v[count];
};

template <class T>
__device__ Pack<T> read_pack(const std::byte* from, bool aligned, std::size_t i, std::size_t n) {
  const auto* x = reinterpret_cast<const T*>(from);
  if (aligned && i + Pack<T>::count <= n) return *reinterpret_cast<const Pack<T>*>(x + i);
  Pack<T> p{};
  for (std::size_t c = 0; c < Pack<T>::count && i + c < n; ++c) p.v[c] = x[i + c];
  return p;
}

template <class T>
__device__ void write_pack(const Pack<T>& p, std::byte* to, bool aligned, std::size_t i, std::size_t n) {
  auto* x = reinterpret_cast<T*>(to);
  if (aligned && i + Pack<T>::count <= n) {
    *reinterpret_cast<Pack<T>*>(x + i) = p;
    return;
  }
  for (std::size_t c = 0; c < Pack<T>::count && i + c < n; ++c) x[i + c] = p.v[c];
}

/// Elements i to i + 16 bytes of all, combined left to right. `wide`: small floats are rounded once, at the end; else
/// after every operation.
template <class Format, Op op, class From>
__device__ Pack<typename Format::Memory> combined(const From& sources, bool wide, std::size_t i, std::size_t n) {
  using T = typename Format::Memory;
  constexpr std::size_t count = Pack<T>::count;
  typename Format::Value v[count];
  Pack<T> p = read_pack<T>(sources.of[0], sources.aligned, i, n);
  for (std::size_t c = 0; c < count; ++c) v[c] = Format::load(p.v[c]);
  for (unsigned k = 1; k < sources.count; ++k) {
    p = read_pack<T>(sources.of[k], sources.aligned, i, n);
    for (std::size_t c = 0; c < count; ++c) {
      if (is_small<Format> && !wide && k > 1) v[c] = Format::load(Format::store(v[c]));
      v[c] = combine<op>(v[c], Format::load(p.v[c]));
    }
  }
  for (std::size_t c = 0; c < count; ++c) p.v[c] = Format::store(settled(v[c]));
  return p;
}

/// Of two, with the same bits.
template <class Format, Op op, class T = typename Format::Memory>
__device__ Pack<T> combined(const Pack<T>& a, const Pack<T>& b) {
  Pack<T> p;
  for (std::size_t c = 0; c < Pack<T>::count; ++c)
    p.v[c] = Format::store(settled(combine<op>(Format::load(a.v[c]), Format::load(b.v[c]))));
  return p;
}

}  // namespace gradmeter::allreduce::cuda
