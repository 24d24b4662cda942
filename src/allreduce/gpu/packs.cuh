// SPDX-License-Identifier: Apache-2.0
// Formats of elements (as they lie in memory, and as values in arithmetic), and operators whose results do not depend
// on the order of operands.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "allreduce/gpu/reduce.hpp"
#include "allreduce/reduce.hpp"
#include "core/element.hpp"
#include "core/host_device.hpp"
#include "runtime/cuda/launch.hpp"

// Stands before a loop that is to be unrolled.
#ifdef GRADMETER_CUDA_EMULATED
#define GPU_UNROLL
#else
#define GPU_UNROLL _Pragma("unroll")
#endif

namespace gradmeter::allreduce::cuda {

/// The format of elements that C++ has a type for.
template <class T>
struct Plain {
  using Memory = T;
  using Value = T;
  static __device__ Value load(Memory m) { return m; }
  static __device__ Memory store(Value v) { return v; }
};

/// The format of small floats, on which arithmetic is done in fp32.
template <class Code, core::SmallFormat format>
struct Small {
  using Memory = Code;
  using Value = float;
  static __device__ Value load(Memory m) { return core::to_float(format, m); }
  static __device__ Memory store(Value v) { return static_cast<Code>(core::rounded_code<format>(v)); }
};

template <class Format>
inline constexpr bool is_small = !std::is_same_v<typename Format::Memory, typename Format::Value>;

/// The minimum or maximum. Of two zeros, -0 is less than +0. If either operand is NaN, the result is the quiet NaN.
template <Op op, class T>
__device__ T extreme(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return core::quiet_nan<T>();
    if (a == b) return (op == Op::min) == std::signbit(a) ? a : b;
  }
  return (op == Op::min) == (a < b) ? a : b;
}

/// Applies an operation. Integers wrap: unsigned sums and products have the same bits as signed ones.
template <Op op, class T>
__device__ T combine(T a, T b) {
  if constexpr (op == Op::min || op == Op::max) return extreme<op>(a, b);
  if constexpr (std::is_floating_point_v<T>) {
    return op == Op::product ? a * b : a + b;
  } else {
    using Wraps = std::conditional_t<sizeof(T) < sizeof(int), unsigned, std::make_unsigned_t<T>>;
    const auto x = static_cast<Wraps>(a), y = static_cast<Wraps>(b);
    return static_cast<T>(op == Op::product ? x * y : x + y);
  }
}

/// Replaces any NaN by the quiet NaN. Must come after the last operation, since each operation makes a NaN whose bits
/// depend on the operands.
template <class T>
__device__ T with_canonical_nan(T v) {
  if constexpr (std::is_floating_point_v<T>) return v == v ? v : core::quiet_nan<T>();
  return v;
}

/// Calls body(format) for an element's format.
template <class Body>
void with_format(core::Element e, Body body) {
  using core::Element;
  switch (e) {
    case Element::f64:
      return body(Plain<double>());
    case Element::f32:
      return body(Plain<float>());
    case Element::i64:
      return body(Plain<std::int64_t>());
    case Element::i32:
      return body(Plain<std::int32_t>());
    case Element::i8:
      return body(Plain<std::int8_t>());
    case Element::f16:
      return body(Small<std::uint16_t, core::fp16_format>());
    case Element::bf16:
      return body(Small<std::uint16_t, core::bf16_format>());
    case Element::e4m3:
      return body(Small<std::uint8_t, core::e4m3_format>());
    case Element::e5m2:
      return body(Small<std::uint8_t, core::e5m2_format>());
  }
}

// Reductions of 16 bytes at a time over several buffers, in the order of the buffers.

/// The sources that `combined` reads, their number, and whether they are aligned.
struct Sources {
  const std::byte* addresses[most_sources];
  unsigned count;
  bool aligned;  ///< sources and destination are aligned to 16 bytes
};

/// The elements that a thread reads at once: 16 bytes.
template <class T>
struct alignas(16) Pack {
  static constexpr std::size_t count = 16 / sizeof(T);
  T v[count];
};

/// True where n elements hold the whole pack that begins at element i.
template <class T>
__device__ bool is_whole(std::size_t i, std::size_t n) {
  return i + Pack<T>::count <= n;
}

/// A whole pack, read from an address that is aligned to 16 bytes. The type is not Pack, because nvcc would unpack
/// small elements right after each load, and so wait for that load before it issues the next.
template <class T>
__device__ uint4 whole_pack(const std::byte* from, std::size_t i) {
  return *reinterpret_cast<const uint4*>(reinterpret_cast<const T*>(from) + i);
}

template <class T>
__device__ void write_whole_pack(const uint4& words, std::byte* to, std::size_t i) {
  *reinterpret_cast<uint4*>(reinterpret_cast<T*>(to) + i) = words;
}

template <class T>
__device__ Pack<T> read_pack(const std::byte* from, bool aligned, std::size_t i, std::size_t n) {
  if (aligned && is_whole<T>(i, n)) return core::bits_as<Pack<T>>(whole_pack<T>(from, i));
  const auto* x = reinterpret_cast<const T*>(from);
  Pack<T> p{};
  for (std::size_t c = 0; c < Pack<T>::count && i + c < n; ++c) p.v[c] = x[i + c];
  return p;
}

template <class T>
__device__ void write_pack(const Pack<T>& p, std::byte* to, bool aligned, std::size_t i, std::size_t n) {
  if (aligned && is_whole<T>(i, n)) return write_whole_pack<T>(core::bits_as<uint4>(p), to, i);
  auto* x = reinterpret_cast<T*>(to);
  for (std::size_t c = 0; c < Pack<T>::count && i + c < n; ++c) x[i + c] = p.v[c];
}

/// The values of a pack while sources are added to it, left to right.
template <class Format, Op op>
struct Combined {
  using T = typename Format::Memory;
  static constexpr std::size_t count = Pack<T>::count;
  typename Format::Value v[count] = {};  // initialised, because compilers cannot know that `take` begins with source 0

  /// Combines source k with the values so far. wide: small floats are rounded only at the end.
  __device__ void take(const uint4& words, unsigned k, bool wide) { take(core::bits_as<Pack<T>>(words), k, wide); }
  __device__ void take(const Pack<T>& p, unsigned k, bool wide) {
    for (std::size_t c = 0; c < count; ++c) {
      const auto x = Format::load(p.v[c]);
      if (k == 0) {
        v[c] = x;
      } else {
        if (is_small<Format> && !wide && k > 1) v[c] = Format::load(Format::store(v[c]));
        v[c] = combine<op>(v[c], x);
      }
    }
  }
  /// The result, rounded to the format.
  __device__ Pack<T> settle() const {
    Pack<T> p;
    for (std::size_t c = 0; c < count; ++c) p.v[c] = Format::store(with_canonical_nan(v[c]));
    return p;
  }
};

/// The value of the template argument `sources` if the number of sources is known only when the kernel runs.
inline constexpr unsigned any_source_count = 0;

/// Combines `packs` packs of all sources: the first begins at element i, and each is `step` elements after the one
/// before. All packs are whole and aligned. Loads are issued before any of their values is used, so that they are under
/// way together: the loads of all sources if the number of sources is a constant, else the loads of two sources at a
/// time. If the number is a constant, small floats are rounded at the end only.
template <class Format, Op op, unsigned sources, unsigned packs, class From>
__device__ void combine_whole(const From& from, bool wide, std::size_t i, std::size_t step,
                              Pack<typename Format::Memory> (&out)[packs]) {
  using T = typename Format::Memory;
  Combined<Format, op> sums[packs];
  if constexpr (sources != any_source_count) {
    uint4 p[sources][packs];
    GPU_UNROLL
    for (unsigned k = 0; k < sources; ++k) {
      GPU_UNROLL
      for (unsigned u = 0; u < packs; ++u) p[k][u] = whole_pack<T>(from.addresses[k], i + u * step);
    }
    GPU_UNROLL
    for (unsigned u = 0; u < packs; ++u) {
      GPU_UNROLL
      for (unsigned k = 0; k < sources; ++k) sums[u].take(p[k][u], k, true);
    }
  } else {
    unsigned k = from.count % 2;
    if (k == 1) {
      GPU_UNROLL
      for (unsigned u = 0; u < packs; ++u) sums[u].take(whole_pack<T>(from.addresses[0], i + u * step), 0, wide);
    }
    for (; k < from.count; k += 2) {
      uint4 a[packs], b[packs];
      GPU_UNROLL
      for (unsigned u = 0; u < packs; ++u) a[u] = whole_pack<T>(from.addresses[k], i + u * step);
      GPU_UNROLL
      for (unsigned u = 0; u < packs; ++u) b[u] = whole_pack<T>(from.addresses[k + 1], i + u * step);
      GPU_UNROLL
      for (unsigned u = 0; u < packs; ++u) sums[u].take(a[u], k, wide), sums[u].take(b[u], k + 1, wide);
    }
  }
  GPU_UNROLL
  for (unsigned u = 0; u < packs; ++u) out[u] = sums[u].settle();
}

/// Combines 16 bytes of all sources from element i on.
template <class Format, Op op, unsigned sources = any_source_count, class From>
__device__ Pack<typename Format::Memory> combined(const From& from, bool wide, std::size_t i, std::size_t n) {
  using T = typename Format::Memory;
  if (from.aligned && is_whole<T>(i, n)) {
    Pack<T> p[1];
    combine_whole<Format, op, sources>(from, wide, i, 0, p);
    return p[0];
  }
  Combined<Format, op> sum;
  for (unsigned k = 0; k < from.count; ++k) sum.take(read_pack<T>(from.addresses[k], false, i, n), k, wide);
  return sum.settle();
}

/// Combines two packs, with the bits that two sources would give.
template <class Format, Op op, class T = typename Format::Memory>
__device__ Pack<T> combined(const Pack<T>& a, const Pack<T>& b) {
  Pack<T> p;
  for (std::size_t c = 0; c < Pack<T>::count; ++c)
    p.v[c] = Format::store(with_canonical_nan(combine<op>(Format::load(a.v[c]), Format::load(b.v[c]))));
  return p;
}

}  // namespace gradmeter::allreduce::cuda
