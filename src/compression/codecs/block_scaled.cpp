// SPDX-License-Identifier: Apache-2.0
// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/block_scaled.hpp"

#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/block_scaled.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "compression/detail/bucketed-inl.hpp"
#include "core/small_float-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {

using detail::Fp8Rule, detail::Lns4Rule, detail::NaturalRule;

#if HWY_TARGET != HWY_SCALAR

/// The conversions that round once; those by way of fp16 would round twice.
template <bool e4m3>
using VectorFp8 = std::conditional_t<e4m3, core::HWY_NAMESPACE::E4m3, core::HWY_NAMESPACE::E5m2>;

template <bool e4m3, class Encoder>
HWY_INLINE Words vector_code(Fp8Rule<e4m3>, const Encoder& c, Floats x, Words) {
  return VectorFp8<e4m3>::encode_magnitude(hn::BitCast(U32(), c.scaled(x, Fp8Rule<e4m3>::top)));
}
template <bool e4m3, class Encoder>
HWY_INLINE CodeBytes finish_codes(Fp8Rule<e4m3>, const Encoder&, CodeBytes codes, CodeBytes signs) {
  return hn::Or(codes, signs);
}

#if HWY_TARGET == HWY_AVX2
/// Does what encode_magnitude (core/small_float-inl.hpp) does, with the last steps in one multiplication: after the
/// addition that rounds, a lane has the mantissa in its lower 16 bits and the exponent in its upper ones.
template <bool e4m3, class Coder>
HWY_INLINE CodeBytes next_in_blocks(Fp8Rule<e4m3>, Coder& coder, const float* x) {
  using Rule = Fp8Rule<e4m3>;
  using Fp8 = VectorFp8<e4m3>;
  // 2^unit is the weight of a code's lowest bit in the products below.
  constexpr int mantissa = Rule::format.mantissa_bits, unit = 7 - mantissa;
  constexpr std::int16_t zero = static_cast<std::int16_t>(((Fp8::lowest_normal >> 23) + Fp8::shift) << 7);
  const U32 d;
  const auto scaled_code = [&](std::size_t v) HWY_ATTR {
    const Floats held = coder.encoder().scaled(hn::LoadU(F32(), x + v * 8), Rule::top);
    const Words exponent{_mm256_max_epi32(hn::And(hn::BitCast(d, held), hn::Set(d, Fp8::infinity)).raw,
                                          hn::Set(d, Fp8::lowest_normal).raw)};
    const auto rounder =
        hn::BitCast(F32(), hn::Add(exponent, hn::Set(d, static_cast<std::uint32_t>(Fp8::shift) << 23)));
    return _mm256_madd_epi16(_mm256_castps_si256(hn::Add(held, rounder).raw), _mm256_set1_epi32(1 << 16 | 1 << unit));
  };
  const auto code = [&](__m256i a, __m256i b) HWY_ATTR {
    return _mm256_srli_epi16(_mm256_sub_epi16(_mm256_packs_epi32(a, b), _mm256_set1_epi16(zero)), unit);
  };
  const __m256i a = scaled_code(0), b = scaled_code(1), e = scaled_code(2), f = scaled_code(3);
  return CodeBytes{_mm256_packs_epi16(code(a, b), code(e, f))};
}
#endif

/// Uses the instructions that convert fp16: every fp8 number is an fp16 number, or becomes one times a power of two.
template <bool e4m3, Scaling scaling>
HWY_INLINE Floats value_at(Fp8Rule<e4m3>, const VectorDecoder<scaling>& c, const std::byte* codes, std::size_t v) {
  namespace fast = core::HWY_NAMESPACE;
  using Fp8 = std::conditional_t<e4m3, fast::FastE4m3, fast::FastE5m2>;
#if HWY_TARGET == HWY_AVX2
  // Makes the fp16 numbers of two vectors at once. An e5m2 code is the upper byte of its fp16 number. An e4m3 code has
  // a copy of its sign bit next to it, from the sign extension; the mask clears the copy.
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + v / 2 * 16));
  const __m256i words = _mm256_cvtepi8_epi16(both);
  __m256i bits = _mm256_slli_epi16(words, e4m3 ? 7 : 8);
  if constexpr (e4m3) bits = _mm256_and_si256(bits, _mm256_set1_epi16(static_cast<short>(0xbf80)));
  if constexpr (e4m3 && scaling == Scaling::general) {
    const __m256i signs = _mm256_and_si256(bits, _mm256_set1_epi16(static_cast<short>(0x8000)));
    const __m256i nan = _mm256_or_si256(signs, _mm256_set1_epi16(0x7e00));
    const __m256i magnitude = _mm256_and_si256(words, _mm256_set1_epi16(0x7f));
    bits = _mm256_blendv_epi8(bits, nan, _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7e)));
  }
  const Floats value{_mm256_cvtph_ps(v % 2 == 0 ? _mm256_castsi256_si128(bits) : _mm256_extracti128_si256(bits, 1))};
#else
  const Floats value = Fp8::decode(Fp8::fetch(codes + v * hn::Lanes(F32())));
#endif
  const Floats inverse =
      Fp8::to_true_scale(hn::Set(F32(), Fp8Rule<e4m3>::inverse));  // exact: the scale is a power of two
  return hn::Mul(hn::Mul(value, inverse), c.second);
}

#if HWY_TARGET == HWY_AVX2
/// True for a bucket of whole units without a code for NaN; encode() writes no such code. Testing all codes of a bucket
/// here saves value_at a test of each number.
HWY_INLINE bool is_direct(Fp8Rule<true>, std::span<const BucketPart> parts, std::size_t count) {
  if (count % bucket_unit != 0) return false;
  __m256i most = _mm256_setzero_si256();
  for (const BucketPart& part : parts) {
    const auto magnitudes = [&](std::size_t i) HWY_ATTR {
      const __m256i code = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(part.codes + i));
      return _mm256_and_si256(code, _mm256_set1_epi8(0x7f));
    };
    for (std::size_t i = 0; i < count; i += bucket_unit) {
      most = _mm256_max_epu8(most, _mm256_max_epu8(magnitudes(i), magnitudes(i + 32)));
    }
  }
  return _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8(0x7f))) == 0;
}
#endif

/// The share |x|/N is held in units of 2^-29, so that the lowest level is 2^23: below it, the integer that is rounded
/// is the share's whole part.
template <class Encoder>
HWY_INLINE Words vector_code(Lns4Rule, Encoder c, Floats x, Words draw) {
  const U32 d;
  constexpr int unit = 29;
  static_assert(Lns4Rule::one_in_units == 0x1p29f && Lns4Rule::lowest * Lns4Rule::one_in_units == 0x1p23f);
  c.second = hn::Mul(c.second, hn::Set(F32(), Lns4Rule::one_in_units));
  const auto share = c.scaled(x, Lns4Rule::top * Lns4Rule::one_in_units);
  const auto below = hn::RebindMask(d, hn::Lt(share, hn::Set(F32(), 0x1p23f)));
  const auto above = hn::Sub(hn::BitCast(d, share), hn::Set(d, Lns4Rule::base + (std::uint32_t{unit} << 23)));
  const auto level_and_position = hn::IfThenElse(below, hn::BitCast(d, whole_part(share)), above);
  return hn::ShiftRight<23>(hn::Add(level_and_position, hn::ShiftRight<9>(draw)));
}
/// Level zero has no sign.
template <class Encoder>
HWY_INLINE CodeBytes finish_codes(Lns4Rule, const Encoder&, CodeBytes codes, CodeBytes signs) {
  alignas(16) static constexpr std::uint8_t code[16] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15};
  const auto signs_at_3 = hn::BitCast(U8(), hn::ShiftRight<4>(hn::BitCast(U16(), signs)));
  return hn::TableLookupBytes(hn::LoadDup128(U8(), code), hn::Or(codes, signs_at_3));
}
HWY_INLINE Floats vector_value(Lns4Rule, const VectorCoefficients& c, Words code) {
  const U32 d;
#if HWY_TARGET == HWY_AVX2 || GRADMETER_AVX512
  // The eight magnitudes of the bucket lie in one vector, twice if it has 16 lanes, so that a look-up by the whole code
  // ignores the sign bit.
  alignas(64) static constexpr float shares[16] = {0, 0x1p-6f, 0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1,
                                                   0, 0x1p-6f, 0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1};
  const auto magnitudes = hn::Mul(hn::Load(F32(), shares), c.first);
  const Words level = hn::ShiftRight<28>(code);
#if HWY_TARGET == HWY_AVX2
  const Floats magnitude{_mm256_permutevar8x32_ps(magnitudes.raw, level.raw)};
#else
  const Floats magnitude{_mm512_permutexvar_ps(level.raw, magnitudes.raw)};
#endif
  return hn::Xor(magnitude, hn::BitCast(F32(), hn::And(code, hn::Set(d, 0x80000000))));
#else
  const auto level = hn::ShiftRight<5>(hn::And(code, hn::Set(d, 0x70000000)));
  const auto power = hn::Add(level, hn::Set(d, Lns4Rule::base));
  const auto share = hn::BitCast(F32(), hn::IfThenZeroElse(hn::Eq(level, hn::Zero(d)), power));
  return hn::Xor(hn::Mul(share, c.first), hn::BitCast(F32(), hn::And(code, hn::Set(d, 0x80000000))));
#endif
}

template <class Encoder>
HWY_INLINE Words vector_code(NaturalRule, const Encoder& c, Floats x, Words draw) {
  const U32 d;
  const auto scaled = hn::BitCast(d, c.scaled(x));
  return hn::ShiftRight<23>(hn::Add(scaled, hn::ShiftRight<9>(draw)));
}
/// Zero has no sign.
template <class Encoder>
HWY_INLINE CodeBytes finish_codes(NaturalRule, const Encoder&, CodeBytes codes, CodeBytes signs) {
  // The top bit of -c is set for c from 1 to 127.
  return hn::OrAnd(codes, signs, hn::Sub(hn::Zero(U8()), codes));
}
template <Scaling scaling>
HWY_INLINE Floats value_at(NaturalRule, const VectorDecoder<scaling>& c, const std::byte* codes, std::size_t v) {
  const I32 d;
  const auto code = hn::ShiftLeft<23>(signed_codes<8>(codes, v));  // a power of two, but for bit 30
  if constexpr (scaling == Scaling::direct) {
    return hn::Mul(hn::BitCast(F32(), hn::And(code, hn::Set(d, static_cast<std::int32_t>(0xbf800000)))), c.second);
  }
  const auto power = hn::BitCast(F32(), hn::And(code, hn::Set(d, 0x3f800000)));
  const auto clamped = hn::Min(hn::Mul(power, c.first), hn::Set(F32(), NaturalRule::largest_product));
  return hn::Xor(hn::Mul(clamped, c.second),
                 hn::BitCast(F32(), hn::And(code, hn::Set(d, std::numeric_limits<std::int32_t>::min()))));
}

#endif

void E4m3Encode(const detail::EncodeJob& job) { encode_buckets<Fp8Rule<true>>(job); }
void E4m3Decode(const detail::DecodeJob& job) { decode_buckets<Fp8Rule<true>>(job); }
void E5m2Encode(const detail::EncodeJob& job) { encode_buckets<Fp8Rule<false>>(job); }
void E5m2Decode(const detail::DecodeJob& job) { decode_buckets<Fp8Rule<false>>(job); }
void Lns4Encode(const detail::EncodeJob& job) { encode_buckets<Lns4Rule>(job); }
void Lns4Decode(const detail::DecodeJob& job) { decode_buckets<Lns4Rule>(job); }
void NaturalEncode(const detail::EncodeJob& job) { encode_buckets<NaturalRule>(job); }
void NaturalDecode(const detail::DecodeJob& job) { decode_buckets<NaturalRule>(job); }

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {
namespace {

using detail::DecodeJob, detail::EncodeJob;

HWY_EXPORT(E4m3Encode);
HWY_EXPORT(E4m3Decode);
HWY_EXPORT(E5m2Encode);
HWY_EXPORT(E5m2Decode);
HWY_EXPORT(Lns4Encode);
HWY_EXPORT(Lns4Decode);
HWY_EXPORT(NaturalEncode);
HWY_EXPORT(NaturalDecode);

void encode_e4m3(const EncodeJob& job) { HWY_DYNAMIC_DISPATCH(E4m3Encode)(job); }
void decode_e4m3(const DecodeJob& job) { HWY_DYNAMIC_DISPATCH(E4m3Decode)(job); }
void encode_e5m2(const EncodeJob& job) { HWY_DYNAMIC_DISPATCH(E5m2Encode)(job); }
void decode_e5m2(const DecodeJob& job) { HWY_DYNAMIC_DISPATCH(E5m2Decode)(job); }
void encode_lns4(const EncodeJob& job) { HWY_DYNAMIC_DISPATCH(Lns4Encode)(job); }
void decode_lns4(const DecodeJob& job) { HWY_DYNAMIC_DISPATCH(Lns4Decode)(job); }
void encode_natural(const EncodeJob& job) { HWY_DYNAMIC_DISPATCH(NaturalEncode)(job); }
void decode_natural(const DecodeJob& job) { HWY_DYNAMIC_DISPATCH(NaturalDecode)(job); }

}  // namespace

std::unique_ptr<Codec> make_fp8_e4m3(const core::ParsedName& name) {
  return detail::make_bucketed<detail::Fp8Rule<true>>(name, {encode_e4m3, decode_e4m3});
}
std::unique_ptr<Codec> make_fp8_e5m2(const core::ParsedName& name) {
  return detail::make_bucketed<detail::Fp8Rule<false>>(name, {encode_e5m2, decode_e5m2});
}
std::unique_ptr<Codec> make_lns4(const core::ParsedName& name) {
  return detail::make_bucketed<detail::Lns4Rule>(name, {encode_lns4, decode_lns4});
}
std::unique_ptr<Codec> make_natural8(const core::ParsedName& name) {
  return detail::make_bucketed<detail::NaturalRule>(name, {encode_natural, decode_natural});
}

}  // namespace gradmeter::compression
#endif
