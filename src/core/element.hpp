// The element table: what a number on the wire or in memory can be. A precision is one row.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gradmeter::core {

enum class Element : std::uint8_t { f64, f32, i64, i32 };

/// One row. `unit_roundoff` is the relative rounding error of one operation (0 for integers): a sum of P summands
/// is right when it is within P * unit_roundoff * sum of the summands' magnitudes of the exact sum.
struct ElementInfo {
  Element element;
  std::string_view name;
  std::size_t bytes;
  double unit_roundoff;
};

inline constexpr std::array elements{
    ElementInfo{Element::f64, "fp64", 8, 0x1p-53},
    ElementInfo{Element::f32, "fp32", 4, 0x1p-24},
    ElementInfo{Element::i64, "int64", 8, 0},
    ElementInfo{Element::i32, "int32", 4, 0},
};

constexpr const ElementInfo& info(Element e) { return elements[static_cast<std::size_t>(e)]; }
constexpr std::size_t size_of(Element e) { return info(e).bytes; }

template <class T>
struct ElementOf;
template <>
struct ElementOf<double> {
  static constexpr Element value = Element::f64;
};
template <>
struct ElementOf<float> {
  static constexpr Element value = Element::f32;
};
template <>
struct ElementOf<std::int64_t> {
  static constexpr Element value = Element::i64;
};
template <>
struct ElementOf<std::int32_t> {
  static constexpr Element value = Element::i32;
};
template <class T>
inline constexpr Element element_of = ElementOf<T>::value;

}  // namespace gradmeter::core
