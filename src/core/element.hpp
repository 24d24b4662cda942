// The element table: the types of numbers on the wire and in memory. A precision is one row.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gradmeter::core {

/// fp8 after OCP's "8-bit floating point specification" 1.0: e4m3 has no infinities and one NaN, e5m2 is like IEEE's.
enum class Element : std::uint8_t { f64, f32, i64, i32, f16, bf16, e4m3, e5m2, i8 };

/// One row. `unit_roundoff` is the relative rounding error of one operation (0 for integers): a sum of P summands
/// is right when it is within P * unit_roundoff * sum of the summands' magnitudes of the exact sum.
struct ElementInfo {
  Element element;
  std::string_view name;
  std::size_t bytes;
  double unit_roundoff;
  std::int64_t exact_integers;  ///< every integer of at most this magnitude is representable
  double largest;               ///< the largest finite value
  double smallest;              ///< the smallest positive value (a subnormal)
};

inline constexpr std::array elements{
    ElementInfo{Element::f64, "fp64", 8, 0x1p-53, std::int64_t{1} << 53, 0x1.fffffffffffffp1023, 0x1p-1074},
    ElementInfo{Element::f32, "fp32", 4, 0x1p-24, 1 << 24, 0x1.fffffep127, 0x1p-149},
    ElementInfo{Element::i64, "int64", 8, 0, INT64_MAX, 0x1p63, 1},
    ElementInfo{Element::i32, "int32", 4, 0, INT32_MAX, INT32_MAX, 1},
    ElementInfo{Element::f16, "fp16", 2, 0x1p-11, 2048, 65504, 0x1p-24},
    ElementInfo{Element::bf16, "bf16", 2, 0x1p-8, 256, 0x1.fep127, 0x1p-133},
    ElementInfo{Element::e4m3, "fp8-e4m3", 1, 0x1p-4, 16, 448, 0x1p-9},
    ElementInfo{Element::e5m2, "fp8-e5m2", 1, 0x1p-3, 8, 57344, 0x1p-16},
    ElementInfo{Element::i8, "int8", 1, 0, INT8_MAX, INT8_MAX, 1},
};

constexpr const ElementInfo& info(Element e) { return elements[static_cast<std::size_t>(e)]; }
constexpr std::size_t size_of(Element e) { return info(e).bytes; }
constexpr bool is_integer(Element e) { return info(e).unit_roundoff == 0; }
/// The 16-bit and 8-bit floats: no C++ type holds them; `core/small_float.hpp` converts them.
constexpr bool is_small_float(Element e) { return !is_integer(e) && size_of(e) < sizeof(float); }

/// The table's names, and those of nccl-tests: float, double, half, bfloat16, fp8 (e4m3), f8e4m3, fp8_e4m3, f8e5m2,
/// fp8_e5m2, int, char. Errors: UsageError with the names that there are; nccl-tests' unsigned types are not among
/// them.
Element parse_element(std::string_view text);

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
template <>
struct ElementOf<std::int8_t> {
  static constexpr Element value = Element::i8;
};
template <class T>
inline constexpr Element element_of = ElementOf<T>::value;

}  // namespace gradmeter::core
