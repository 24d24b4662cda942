// Elements as memory holds them and as arithmetic has them, and operators that do not depend on the order of operands.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "allreduce/reduce.hpp"
#include "core/host_device.hpp"
#include "core/small_float.hpp"

namespace gradmeter::allreduce::cuda {

/// A type of C++.
template <class T>
struct Plain {
  using Memory = T;
  using Value = T;
  static __device__ Value load(Memory m) { return m; }
  static __device__ Memory store(Value v) { return v; }
};

/// A small float, computed with in fp32.
template <class Code, core::SmallFormat format>
struct Small {
  using Memory = Code;
  using Value = float;
  static __device__ Value load(Memory m) { return core::to_float(format, m); }
  static __device__ Memory store(Value v) { return static_cast<Code>(core::rounded_code<format>(v)); }
};

template <class Format>
inline constexpr bool is_small = !std::is_same_v<typename Format::Memory, typename Format::Value>;

/// Equal numbers have equal bits, but for zeros: there the signs decide. Any NaN gives the quiet one.
template <Op op, class T>
__device__ T extreme(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return (op == Op::min) == std::signbit(a) ? a : b;
  }
  return (op == Op::min) == (a < b) ? a : b;
}

/// Integers wrap: sums and products of unsigned ones have the same bits.
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

/// After the last operation: until here a NaN's bits depend on the operands.
template <class T>
__device__ T settled(T v) {
  if constexpr (std::is_floating_point_v<T>) return v == v ? v : std::numeric_limits<T>::quiet_NaN();
  return v;
}

/// Body(format) for an element's format.
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

}  // namespace gradmeter::allreduce::cuda
