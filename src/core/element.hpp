// SPDX-License-Identifier: Apache-2.0
// The types of numbers ("elements") in messages and in memory, with a table of their properties; and the conversions of
// the 16-bit and 8-bit floats, for which C++ has no types.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/host_device.hpp"

namespace gradmeter::core {

/// The types of elements. The fp8 formats are those of OCP's "8-bit floating point specification" 1.0: e4m3 has no
/// infinities and one NaN, e5m2 is like IEEE's.
enum class Element : std::uint8_t { f64, f32, i64, i32, f16, bf16, e4m3, e5m2, i8 };

/// One row of `elements`. `unit_roundoff` is the largest relative rounding error of one operation (0 for integers). A
/// sum of P summands counts as right if it differs from the exact sum by at most P * unit_roundoff * sum of the
/// summands' magnitudes.
struct ElementInfo {
  Element element;
  std::string_view name;
  std::size_t bytes;
  double unit_roundoff;
  std::int64_t exact_integers;  ///< every integer of at most this magnitude is representable
  double largest;               ///< the largest finite value, rounded to a double
  double smallest;              ///< the smallest positive value (for floats a subnormal)
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
/// True for a 16-bit or 8-bit float.
constexpr bool is_small_float(Element e) { return !is_integer(e) && size_of(e) < sizeof(float); }

/// The element that a name stands for. Accepts the names of the table and those of nccl-tests (double, float, half,
/// bfloat16, f8e4m3, f8e5m2, int, char, and spellings such as fp8_e4m3). Errors: UsageError that lists the table's
/// names; nccl-tests' unsigned types are refused too.
Element parse_element(std::string_view text);

template <class T>
constexpr Element find_element() {
  if constexpr (std::is_same_v<T, double>) return Element::f64;
  if constexpr (std::is_same_v<T, float>) return Element::f32;
  if constexpr (std::is_same_v<T, std::int64_t>) return Element::i64;
  if constexpr (std::is_same_v<T, std::int32_t>) return Element::i32;
  if constexpr (std::is_same_v<T, std::int8_t>) return Element::i8;
}
/// The element of a C++ type. Does not compile for a type that holds no element.
template <class T>
inline constexpr Element element_of = find_element<T>();

// The 16-bit and 8-bit floats, one number at a time: the reference for every faster conversion.

/// A format of small floats. A code (the bits of one number) holds, from the highest bit down, sign, exponent and
/// mantissa. In a format without infinities (OCP's e4m3) the highest exponent holds numbers too; there, NaN is the code
/// whose exponent and mantissa are all ones.
struct SmallFormat {
  int exponent_bits, mantissa_bits;
  bool infinities = true;

  GRADMETER_HOST_DEVICE constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  GRADMETER_HOST_DEVICE constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  GRADMETER_HOST_DEVICE constexpr std::uint16_t sign() const { return static_cast<std::uint16_t>(1u << (bits() - 1)); }
  /// The code with the largest exponent and a mantissa of 0: infinity, if the format has one.
  GRADMETER_HOST_DEVICE constexpr std::uint16_t top_exponent() const {
    return static_cast<std::uint16_t>(((1u << exponent_bits) - 1) << mantissa_bits);
  }
  /// The quiet NaN of positive sign, to which every NaN is rounded.
  GRADMETER_HOST_DEVICE constexpr std::uint16_t nan() const {
    return static_cast<std::uint16_t>(infinities ? top_exponent() | 1u << (mantissa_bits - 1) : sign() - 1u);
  }
  /// The code of the largest finite number.
  GRADMETER_HOST_DEVICE constexpr std::uint16_t largest() const {
    return static_cast<std::uint16_t>(infinities ? top_exponent() - 1u : nan() - 1u);
  }
  GRADMETER_HOST_DEVICE constexpr bool is_nan(std::uint16_t code) const {
    const auto magnitude = static_cast<std::uint16_t>(code & (sign() - 1u));
    return infinities ? magnitude > top_exponent() : magnitude == nan();
  }
};

inline constexpr SmallFormat fp16_format{5, 10}, bf16_format{8, 7}, e4m3_format{4, 3, false}, e5m2_format{5, 2};

/// The format of a small float. For other elements the result has no meaning.
constexpr const SmallFormat& small_format(Element e) {
  switch (e) {
    case Element::f16:
      return fp16_format;
    case Element::bf16:
      return bf16_format;
    case Element::e4m3:
      return e4m3_format;
    default:
      return e5m2_format;
  }
}

/// The result of rounding a number that is too large for the format. `honest`: infinity, or NaN if the format has no
/// infinity, so that training notices the overflow; used for sums. `saturate`: the largest finite number, also for
/// infinities; used by codecs with a scale.
enum class Overflow { honest, saturate };

/// Converts exactly; a NaN becomes the quiet NaN with the same sign.
GRADMETER_HOST_DEVICE constexpr float to_float(SmallFormat f, std::uint16_t code) {
  const bool negative = code & f.sign();
  const auto magnitude = static_cast<std::uint32_t>(code & (f.sign() - 1u));
  const auto signed_bits = [&](std::uint32_t bits) { return bits_as<float>(bits | (negative ? 1u << 31 : 0u)); };
  if (f.is_nan(code)) return signed_bits(0x7fc00000);
  if (f.infinities && magnitude == f.top_exponent()) return signed_bits(0x7f800000);
  const std::uint32_t exponent = magnitude >> f.mantissa_bits;
  const std::uint32_t mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  if (exponent != 0) {
    const auto bias_step = static_cast<std::uint32_t>(127 - f.bias());
    return signed_bits((exponent + bias_step) << 23 | mantissa << (23 - f.mantissa_bits));
  }
  // Subnormal: mantissa * 2^(1 - bias - mantissa_bits). The power of 2 is split into two factors, each of which is a
  // normal float even for bf16.
  const auto power = [](int p) { return bits_as<float>(static_cast<std::uint32_t>(p + 127) << 23); };
  const float value = static_cast<float>(mantissa) * power(1 - f.bias()) * power(-f.mantissa_bits);
  return negative ? -value : value;
}

/// Rounds once, to nearest, ties to even; small numbers become subnormals. A NaN becomes `f.nan()`.
GRADMETER_HOST_DEVICE constexpr std::uint16_t from_double(SmallFormat f, double value,
                                                          Overflow overflow = Overflow::honest) {
  const auto bits = bits_as<std::uint64_t>(value);
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  const unsigned sign = bits >> 63 ? f.sign() : 0u;
  if (magnitude > 0x7ff0000000000000) return f.nan();
  // The code is the number's 64-bit pattern with another exponent bias, and with the end of the mantissa (`tail`)
  // rounded away. Below the format's normal range the implicit leading 1 becomes a bit of the mantissa, and the tail
  // gets longer.
  const int exponent = static_cast<int>(magnitude >> 52) - 1023, lowest = 1 - f.bias();
  const std::uint64_t mantissa =
      (magnitude & ((std::uint64_t{1} << 52) - 1)) | (exponent > -1023) * (std::uint64_t{1} << 52);
  const int cut = 52 - f.mantissa_bits + (exponent < lowest ? lowest - exponent : 0);
  if (cut > 54) return static_cast<std::uint16_t>(sign);
  const std::uint64_t kept = mantissa >> cut, tail = mantissa & ((std::uint64_t{1} << cut) - 1);
  const std::uint64_t half = std::uint64_t{1} << (cut - 1);
  const std::uint64_t rounded = kept + (tail > half || (tail == half && (kept & 1)));
  const auto based = exponent < lowest ? 0 : static_cast<std::uint64_t>(exponent - lowest) << f.mantissa_bits;
  const std::uint64_t code = based + rounded;
  if (code <= f.largest()) return static_cast<std::uint16_t>(sign | code);
  if (overflow == Overflow::saturate) return static_cast<std::uint16_t>(sign | f.largest());
  return f.infinities ? static_cast<std::uint16_t>(sign | f.top_exponent()) : f.nan();
}
GRADMETER_HOST_DEVICE constexpr std::uint16_t from_float(SmallFormat f, float value,
                                                         Overflow overflow = Overflow::honest) {
  return from_double(f, static_cast<double>(value), overflow);
}

// from_float in 32-bit arithmetic, for a format known at compile time. GPUs have few 64-bit units.

/// The code of a non-negative fp32 number (not NaN), which is given by its bits. If the number is too large for the
/// format, the result is above `f.largest()`.
template <SmallFormat f>
GRADMETER_HOST_DEVICE constexpr std::uint32_t rounded_magnitude(std::uint32_t bits) {
  constexpr int cut = 23 - f.mantissa_bits, lowest = 1 - f.bias() + 127;  // exponents with fp32's bias
  constexpr std::uint32_t below_half = (1u << (cut - 1)) - 1, rebase = static_cast<std::uint32_t>(lowest - 1) << 23;
  if (lowest > 1 && bits < static_cast<std::uint32_t>(lowest) << 23) {
    // Just above `from`, neighbouring fp32 numbers are as far apart as the format's subnormals. So adding `from` rounds
    // to a multiple of this distance. The multiple is the code: the sum's bits minus the bits of `from`.
    constexpr std::uint32_t from = static_cast<std::uint32_t>(lowest + cut) << 23;
    return bits_as<std::uint32_t>(bits_as<float>(bits) + bits_as<float>(from)) - from;
  }
  return (bits - rebase + below_half + (bits >> cut & 1)) >> cut;
}

template <SmallFormat f>
GRADMETER_HOST_DEVICE constexpr std::uint16_t rounded_code(float value, Overflow overflow = Overflow::honest) {
  const auto bits = bits_as<std::uint32_t>(value), magnitude = bits & 0x7fffffff;
  const std::uint32_t sign = bits >> 31 ? f.sign() : 0u;
  if (magnitude > 0x7f800000) return f.nan();
  const std::uint32_t code = rounded_magnitude<f>(magnitude);
  if (code <= f.largest()) return static_cast<std::uint16_t>(sign | code);
  if (overflow == Overflow::saturate) return static_cast<std::uint16_t>(sign | f.largest());
  return f.infinities ? static_cast<std::uint16_t>(sign | f.top_exponent()) : f.nan();
}

/// Reads an element of any type as a double; an int64 beyond 2^53 is rounded. Cost of `load` and `store`: a switch for
/// each element, so they are not for long loops.
double load(Element, const std::byte* from);
/// Writes a double as an element of any type. Floats are rounded to nearest, ties to even. For an integer type the
/// value is truncated, and must fit.
void store(Element, std::byte* to, double value);

}  // namespace gradmeter::core
