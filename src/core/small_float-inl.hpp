// SPDX-License-Identifier: Apache-2.0
// Converts vectors of 16-bit and 8-bit floats to fp32 (decode) and back (encode). The conversions use integer
// arithmetic, because Highway's conversion functions truncate on some instruction sets and round on others, and lose
// infinities. On processors with instructions that convert fp16, the types whose names begin with Fast use these
// instructions, also for fp8. The reference for the results is core/element.hpp. The file is included once for each
// instruction set, hence its unusual include guard.
#if defined(GRADMETER_SMALL_FLOAT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADMETER_SMALL_FLOAT_INL
#undef GRADMETER_SMALL_FLOAT_INL
#else
#define GRADMETER_SMALL_FLOAT_INL
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/element.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::core::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<std::uint32_t>;
using I32 = hn::ScalableTag<std::int32_t>;
using Floats = hn::Vec<F32>;
using Words = hn::Vec<U32>;

/// The conversions of a format whose exponent range is smaller than fp32's.
template <SmallFormat f, class StoredCode>
struct FormatConversion {
  using Code = StoredCode;
  static constexpr int shift = 23 - f.mantissa_bits;
  static constexpr std::uint32_t lowest_normal = static_cast<std::uint32_t>(127 + 1 - f.bias()) << 23;
  static constexpr std::uint32_t infinity = 0x7f800000;

  static HWY_INLINE Floats decode(Words code) {
    const U32 du;
    const F32 df;
    const Words magnitude = hn::And(code, hn::Set(du, f.sign() - 1u));
    const Words sign = hn::ShiftLeft<32 - f.bits()>(hn::And(code, hn::Set(du, f.sign())));
    // Let 2^e be the lowest normal number. A subnormal m·2^e is read as (1 + m)·2^e, and then 2^e is subtracted.
    const Words rebased = hn::Add(hn::ShiftLeft<shift>(magnitude), hn::Set(du, lowest_normal - (1u << 23)));
    const Words first = hn::Set(du, 1u << f.mantissa_bits);
    const Floats lowest = hn::BitCast(df, hn::Set(du, lowest_normal));
    const Words subnormal = hn::BitCast(du, hn::Sub(hn::BitCast(df, hn::Add(rebased, hn::Set(du, 1u << 23))), lowest));
    Words bits = hn::IfThenElse(less(magnitude, first), subnormal, rebased);
    if constexpr (f.infinities) {
      const Words top = hn::Set(du, f.top_exponent());
      // Gives infinity and NaN the highest exponent of fp32. Infinity keeps its mantissa of 0, and a NaN its quiet bit.
      const Words special = hn::Or(hn::ShiftLeft<shift>(magnitude), hn::Set(du, infinity));
      bits = hn::IfThenElse(less(magnitude, top), bits, special);
    } else {
      bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(du, f.nan())), hn::Set(du, 0x7fc00000), bits);
    }
    return hn::BitCast(df, hn::Or(bits, sign));
  }

  /// The code, without sign, of the fp32 number x whose magnitude has the bits `magnitude_bits`. Let e be the exponent
  /// of x, but at least the format's lowest. In fp32, the last bit of |x| + 2^(e + shift) has the value of the format's
  /// last mantissa bit. So this addition rounds to nearest even as the format does, and leaves the rounded mantissa in
  /// the low bits of the sum. `magnitude_bits` must not exceed `too_large()`.
  static HWY_INLINE Words encode_magnitude(Words magnitude_bits) {
    const U32 du;
    const F32 df;
    const Words exponent = larger(hn::And(magnitude_bits, hn::Set(du, infinity)), hn::Set(du, lowest_normal));
    const Words rounder = hn::Add(exponent, hn::Set(du, static_cast<std::uint32_t>(shift) << 23));
    const Words sum = hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude_bits), hn::BitCast(df, rounder)));
    const Words based = hn::ShiftRight<shift>(hn::Sub(exponent, hn::Set(du, lowest_normal)));
    return hn::Add(hn::Sub(sum, rounder), based);
  }
  static HWY_INLINE Words encode(Floats x) {
    const U32 du;
    const Words bits = hn::BitCast(du, x);
    const Words magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
    const Words sign = hn::And(hn::ShiftRight<32 - f.bits()>(bits), hn::Set(du, f.sign()));
    const Words code = encode_magnitude(smaller(magnitude, hn::Set(du, too_large())));
    if constexpr (f.infinities) {
      return hn::IfThenElse(less(hn::Set(du, infinity), magnitude), hn::Set(du, f.nan()), hn::Or(code, sign));
    } else {
      const Words nan = hn::Set(du, f.nan());
      return hn::IfThenElse(hn::Eq(code, nan), nan, hn::Or(code, sign));
    }
  }

 private:
  /// The fp32 bits of the number that follows the format's largest finite one. `encode` replaces larger magnitudes by
  /// this one, whose code is that of infinity, or of e4m3's NaN.
  static constexpr std::uint32_t too_large() {
    if (f.infinities) return static_cast<std::uint32_t>(f.bias() + 1 + 127) << 23;
    return std::bit_cast<std::uint32_t>(480.0f);
  }
  // Magnitudes are below 2^31, so signed comparisons (SSE has no others) are right.
  static HWY_INLINE auto less(Words a, Words b) {
    return hn::RebindMask(U32(), hn::Lt(hn::BitCast(I32(), a), hn::BitCast(I32(), b)));
  }
  static HWY_INLINE Words smaller(Words a, Words b) {
    return hn::BitCast(U32(), hn::Min(hn::BitCast(I32(), a), hn::BitCast(I32(), b)));
  }
  static HWY_INLINE Words larger(Words a, Words b) {
    return hn::BitCast(U32(), hn::Max(hn::BitCast(I32(), a), hn::BitCast(I32(), b)));
  }
};

/// bf16 is the upper half of an fp32.
struct UpperHalf {
  using Code = std::uint16_t;
  static HWY_INLINE Floats decode(Words code) { return hn::BitCast(F32(), hn::ShiftLeft<16>(code)); }
  static HWY_INLINE Words encode(Floats x) {
    const U32 du;
    const Words bits = hn::BitCast(du, x);
    const Words odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const Words rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff))));
    return hn::IfThenElse(hn::RebindMask(du, hn::Eq(x, x)), rounded, hn::Set(du, bf16_format.nan()));
  }
};

/// Adds functions to the conversions of its base class C: fetch loads codes from memory into 32-bit lanes, and put
/// stores them. to_true_scale(decode(code)) is the number that a code stands for. It is decode(code) itself, except for
/// FastE4m3, whose decode and encode work with numbers scaled by 2^-8.
template <class C>
struct PortableConversion : C {
  using Packed = hn::Rebind<typename C::Code, U32>;
  static HWY_INLINE Words fetch(const std::byte* from) {
    return hn::PromoteTo(U32(), hn::LoadU(Packed(), reinterpret_cast<const typename C::Code*>(from)));
  }
  static HWY_INLINE void put(Words codes, std::byte* to) {
    hn::StoreU(hn::DemoteTo(Packed(), hn::BitCast(I32(), codes)), Packed(), reinterpret_cast<typename C::Code*>(to));
  }
  static HWY_INLINE Floats to_true_scale(Floats v) { return v; }
};
using Half = PortableConversion<FormatConversion<fp16_format, std::uint16_t>>;
using Bf16 = PortableConversion<UpperHalf>;
using E4m3 = PortableConversion<FormatConversion<e4m3_format, std::uint8_t>>;
using E5m2 = PortableConversion<FormatConversion<e5m2_format, std::uint8_t>>;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// These instruction sets convert between fp16 and fp32, rounding to nearest even. The fp8 formats are fp16 with fewer
// bits of mantissa (e4m3 after a scaling by 2^-8, the difference of the biases), so fp8 is converted by way of fp16. A
// sum of two fp8 numbers may be rounded to fp16 first and then to fp8, with the same result as if rounded once. This
// holds because fp16 has at least 2p + 2 significant bits where fp8 has p (Figueroa 1995), and because fp8's subnormals
// are multiples of fp16's. Rounding twice may be wrong for the product of two fp8 numbers, and for a number that was
// already rounded to fp32.
using U16 = hn::Rebind<std::uint16_t, U32>;
using F16 = hn::Rebind<hwy::float16_t, U32>;
using Halves = hn::Vec<U16>;

HWY_INLINE Floats from_halves(Halves v) { return hn::PromoteTo(F32(), hn::BitCast(F16(), v)); }
HWY_INLINE Halves to_halves(Floats v) { return hn::BitCast(U16(), hn::DemoteTo(F16(), v)); }
/// Cuts the lowest `cut` bits of each lane, rounding to nearest even.
template <int cut>
HWY_INLINE Halves cut_off(Halves v) {
  const Halves odd = hn::And(hn::ShiftRight<cut>(v), hn::Set(U16(), 1));
  return hn::ShiftRight<cut>(hn::Add(hn::Add(v, odd), hn::Set(U16(), (1u << (cut - 1)) - 1)));
}

/// Replaces every NaN by the same quiet NaN, since the conversion instruction would keep its sign and payload.
HWY_INLINE Floats one_nan(Floats v) {
  return hn::IfThenElse(hn::Eq(v, v), v, hn::Set(F32(), std::numeric_limits<float>::quiet_NaN()));
}

struct FastHalf {
  using Code = std::uint16_t;
  static HWY_INLINE Halves fetch(const std::byte* from) {
    return hn::LoadU(U16(), reinterpret_cast<const Code*>(from));
  }
  static HWY_INLINE void put(Halves v, std::byte* to) { hn::StoreU(v, U16(), reinterpret_cast<Code*>(to)); }
  static HWY_INLINE Floats decode(Halves v) { return from_halves(v); }
  static HWY_INLINE Halves encode(Floats v) { return to_halves(one_nan(v)); }
  static HWY_INLINE Floats to_true_scale(Floats v) { return v; }
};

struct FastBytes {
  using Code = std::uint8_t;
  using Packed = hn::Rebind<std::uint8_t, U32>;
  /// Sign-extends the codes: bits 8 to 15 are copies of the sign, bit 7. FastE4m3::decode needs these copies; put()
  /// drops them.
  static HWY_INLINE Halves fetch(const std::byte* from) {
    const hn::Rebind<std::int8_t, U32> packed;
    const hn::Rebind<std::int16_t, U32> halves;
    return hn::BitCast(U16(), hn::PromoteTo(halves, hn::LoadU(packed, reinterpret_cast<const std::int8_t*>(from))));
  }
  static HWY_INLINE void put(Halves v, std::byte* to) {
    const hn::Rebind<std::int16_t, U32> signed_halves;
    const Halves code = hn::And(v, hn::Set(U16(), 0xff));
    hn::StoreU(hn::DemoteTo(Packed(), hn::BitCast(signed_halves, code)), Packed(), reinterpret_cast<Code*>(to));
  }
};

struct FastE5m2 : FastBytes {
  static HWY_INLINE Floats decode(Halves v) { return from_halves(hn::ShiftLeft<8>(v)); }
  /// The result has no copies of the sign in bits 8 to 15, since decode() does not read them here.
  static HWY_INLINE Halves encode(Floats v) { return cut_off<8>(to_halves(one_nan(v))); }
  static HWY_INLINE Floats to_true_scale(Floats v) { return v; }
};

struct FastE4m3 : FastBytes {
  static HWY_INLINE Floats decode(Halves v) {
    const Halves nan = hn::Set(U16(), 0x7f), magnitude = hn::And(v, nan);
    const Halves bits = hn::And(hn::ShiftLeft<7>(v), hn::Set(U16(), 0xbf80));
    return from_halves(hn::IfThenElse(hn::Eq(magnitude, nan), hn::Set(U16(), 0x7e00), bits));
  }
  static HWY_INLINE Halves encode(Floats v) {
    const Halves bits = to_halves(v), nan = hn::Set(U16(), 0x7f);
    const Halves code = hn::Min(cut_off<7>(hn::And(bits, hn::Set(U16(), 0x7fff))), nan);
    const hn::Rebind<std::int16_t, U32> signed_halves;
    const Halves signs = hn::BitCast(U16(), hn::ShiftRight<8>(hn::BitCast(signed_halves, bits)));
    return hn::IfThenElse(hn::Eq(code, nan), nan, hn::Or(code, hn::And(signs, hn::Set(U16(), 0xff80))));
  }
  static HWY_INLINE Floats to_true_scale(Floats v) { return hn::Mul(v, hn::Set(F32(), 256.0f)); }
};
#else
using FastHalf = Half;
using FastE4m3 = E4m3;
using FastE5m2 = E5m2;
#endif

}  // namespace gradmeter::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
