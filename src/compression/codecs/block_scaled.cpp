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

/// Rounded once: not by way of fp16, which would be a second time.
template <bool e4m3>
using VectorFp8 = std::conditional_t<e4m3, core::HWY_NAMESPACE::E4m3, core::HWY_NAMESPACE::E5m2>;

template <bool e4m3, class Encoder>
HWY_INLINE Words vector_code(Fp8Rule<e4m3>, const Encoder& c, Floats x, Words) {
  const U32 d;
  const Words code = VectorFp8<e4m3>::encode_magnitude(hn::BitCast(d, c.scaled(x, Fp8Rule<e4m3>::top)));
  return hn::OrAnd(code, hn::ShiftRight<24>(hn::BitCast(d, x)), hn::Set(d, 0x80));
}
/// The instructions that convert fp16 serve here: every fp8 number is one of fp16, or becomes one by a power of two.
template <bool e4m3>
HWY_INLINE Floats value_at(Fp8Rule<e4m3>, const VectorCoefficients& c, const std::byte* codes, std::size_t v) {
  namespace fast = core::HWY_NAMESPACE;
  using Fp8 = std::conditional_t<e4m3, fast::FastE4m3, fast::FastE5m2>;
  const Floats value = Fp8::decode(Fp8::fetch(codes + v * hn::Lanes(F32())));
  const Floats inverse =
      Fp8::to_true_scale(hn::Set(F32(), Fp8Rule<e4m3>::inverse));  // a power of two times it is exact
  return hn::Mul(hn::Mul(value, inverse), c.second);
}

template <class Encoder>
HWY_INLINE Words vector_code(Lns4Rule, const Encoder& c, Floats x, Words draw) {
  const U32 d;
  const auto share = c.scaled(x, Lns4Rule::top);
  const auto below = hn::RebindMask(d, hn::Lt(share, hn::Set(F32(), Lns4Rule::lowest)));
  const auto small = hn::BitCast(d, hn::ConvertTo(I32(), hn::Mul(share, hn::Set(F32(), Lns4Rule::to_lowest))));
  const auto place = hn::IfThenElse(below, small, hn::Sub(hn::BitCast(d, share), hn::Set(d, Lns4Rule::base)));
  const auto level = hn::ShiftRight<23>(hn::Add(place, hn::ShiftRight<9>(draw)));
  return hn::Or(level, hn::And(hn::ShiftRight<28>(hn::BitCast(d, x)), hn::Set(d, 8)));
}
/// Level zero has no sign.
template <class Encoder>
HWY_INLINE CodeBytes settled_codes(Lns4Rule, const Encoder&, CodeBytes codes) {
  alignas(16) static constexpr std::uint8_t code[16] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15};
  return hn::TableLookupBytes(hn::LoadDup128(U8(), code), codes);
}
HWY_INLINE Floats vector_value(Lns4Rule, const VectorCoefficients& c, Words code) {
  const U32 d;
#if HWY_TARGET == HWY_AVX2 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
  // All magnitudes of the bucket lie in the lanes of one vector, once or twice.
  alignas(64) static constexpr float shares[16] = {0, 0x1p-6f, 0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1,
                                                   0, 0x1p-6f, 0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1};
  const auto level = hn::IndicesFromVec(F32(), hn::And(hn::ShiftRight<28>(code), hn::Set(d, 7)));
  const auto magnitude = hn::TableLookupLanes(hn::Mul(hn::Load(F32(), shares), c.first), level);
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
  const auto scaled = hn::BitCast(d, hn::Mul(hn::Mul(hn::Abs(x), c.first), c.second));
  const auto exponent = hn::ShiftRight<23>(hn::Add(scaled, hn::ShiftRight<9>(draw)));
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(d, x)), hn::Set(d, 0x80));
  return hn::IfThenZeroElse(hn::Eq(exponent, hn::Zero(d)), hn::Or(exponent, sign));
}
template <Scaling scaling>
HWY_INLINE Floats value_at(NaturalRule, const VectorDecoder<scaling>& c, const std::byte* codes, std::size_t v) {
  const I32 d;
  const auto code = hn::ShiftLeft<23>(signed_codes<8>(codes, v));  // a power of two, but for bit 30
  if constexpr (scaling == Scaling::direct) {
    return hn::Mul(hn::BitCast(F32(), hn::And(code, hn::Set(d, static_cast<std::int32_t>(0xbf800000)))), c.second);
  }
  const auto power = hn::BitCast(F32(), hn::And(code, hn::Set(d, 0x3f800000)));
  const auto clamped = hn::Min(hn::Mul(power, c.first), hn::Set(F32(), NaturalRule::most));
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
