// SPDX-License-Identifier: Apache-2.0
// Elements in memory and as values in arithmetic, and operators that do not depend on the order of operands.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "allreduce/gpu/reduce.hpp"
#include "allreduce/reduce.hpp"
#include "core/element.hpp"
#include "core/host_device.hpp"

namespace gradmeter::allreduce::cuda {

/// The format of an element that is a type of C++.
template <class T>
struct Plain {
  using Memory = T;
  using Value = T;
  static __device__ Value load(Memory m) { return m; }
  static __device__ Memory store(Value v) { return v; }
};

/// The format of a small float, which arithmetic takes as fp32.
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

/// Replaces any NaN by the quiet NaN. It comes after the last operation, since a NaN's bits depend on the operands.
template <class T>
__device__ T settled(T v) {
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
  const std::byte* of[most_sources];
  unsigned count;
  bool aligned;  ///< sources and destination are aligned to 16 bytes
};

/// The elements that a thread reads at once: 16 bytes.
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

/// Combines 16 bytes of all sources from element i on, left to right. wide: small floats are rounded at the end only.
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

/// Combines two packs, with the bits that two sources would give.
template <class Format, Op op, class T = typename Format::Memory>
__device__ Pack<T> combined(const Pack<T>& a, const Pack<T>& b) {
  Pack<T> p;
  for (std::size_t c = 0; c < Pack<T>::count; ++c)
    p.v[c] = Format::store(settled(combine<op>(Format::load(a.v[c]), Format::load(b.v[c]))));
  return p;
}

}  // namespace gradmeter::allreduce::cuda
