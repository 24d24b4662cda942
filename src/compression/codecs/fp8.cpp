// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/fp8.hpp"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/fp8.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "compression/detail/bucketed-inl.hpp"
#include "compression/detail/fp8_rule.hpp"
#include "core/small_float-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {

using detail::Fp8Rule;

#if HWY_TARGET != HWY_SCALAR
namespace small = core::HWY_NAMESPACE;

/// In one rounding: not by way of fp16, which would be a second one.
template <bool e4m3>
struct VectorEncoder<Fp8Rule<e4m3>> {
  using Exact = std::conditional_t<e4m3, small::E4m3, small::E5m2>;
  explicit VectorEncoder(const typename Fp8Rule<e4m3>::Encoder& p)
      : prescale(hn::Set(F32(), p.prescale)), factor(hn::Set(F32(), p.factor)) {}
  HWY_INLINE Words code(Floats x, Words) const {
    const auto scaled = hn::Mul(hn::Mul(hn::Abs(x), prescale), factor);
    return Exact::encode(hn::CopySign(hn::Min(scaled, hn::Set(F32(), Fp8Rule<e4m3>::most)), x));
  }
  Floats prescale, factor;
};

template <bool e4m3>
struct VectorDecoder<Fp8Rule<e4m3>> {
  using Exact = std::conditional_t<e4m3, small::E4m3, small::E5m2>;
  explicit VectorDecoder(const typename Fp8Rule<e4m3>::Decoder& p) : norm(hn::Set(F32(), p.norm)) {}
  HWY_INLINE Floats value(Words code) const {
    const auto scaled = Exact::decode(hn::ShiftRight<24>(code));
    return hn::Mul(hn::Mul(scaled, hn::Set(F32(), Fp8Rule<e4m3>::Decoder::inverse)), norm);
  }
  Floats norm;
};
#endif

void E4m3Encode(const detail::EncodeJob& job) { encode_buckets<Fp8Rule<true>>(job); }
void E4m3Decode(const detail::DecodeJob& job) { decode_buckets<Fp8Rule<true>>(job); }
void E5m2Encode(const detail::EncodeJob& job) { encode_buckets<Fp8Rule<false>>(job); }
void E5m2Decode(const detail::DecodeJob& job) { decode_buckets<Fp8Rule<false>>(job); }

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {
namespace {

HWY_EXPORT(E4m3Encode);
HWY_EXPORT(E4m3Decode);
HWY_EXPORT(E5m2Encode);
HWY_EXPORT(E5m2Decode);

template <bool e4m3>
void encode(const detail::EncodeJob& job) {
  if (e4m3) return HWY_DYNAMIC_DISPATCH(E4m3Encode)(job);
  HWY_DYNAMIC_DISPATCH(E5m2Encode)(job);
}
template <bool e4m3>
void decode(const detail::DecodeJob& job) {
  if (e4m3) return HWY_DYNAMIC_DISPATCH(E4m3Decode)(job);
  HWY_DYNAMIC_DISPATCH(E5m2Decode)(job);
}

template <bool e4m3>
std::unique_ptr<Codec> made(const core::ParsedName& name) {
  return std::make_unique<detail::Bucketed>(
      name.canonical(), detail::Bucketed::Settings{.layout = {.bucket = detail::bucket_of(name)},
                                                   .fast = {encode<e4m3>, decode<e4m3>},
                                                   .plain = detail::plain_loops<detail::Fp8Rule<e4m3>>});
}

}  // namespace

std::unique_ptr<Codec> make_fp8_e4m3(const core::ParsedName& name) { return made<true>(name); }
std::unique_ptr<Codec> make_fp8_e5m2(const core::ParsedName& name) { return made<false>(name); }

}  // namespace gradmeter::compression
#endif
