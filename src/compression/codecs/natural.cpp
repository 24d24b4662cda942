// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/natural.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/natural.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "compression/detail/bucketed-inl.hpp"
#include "compression/detail/natural_rule.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {

using detail::NaturalRule;

#if HWY_TARGET != HWY_SCALAR
template <>
struct VectorEncoder<NaturalRule> {
  explicit VectorEncoder(const NaturalRule::Encoder& p)
      : first(hn::Set(F32(), p.first)), second(hn::Set(F32(), p.second)) {}
  HWY_INLINE Words code(Floats x, Words draw) const {
    const U32 d;
    const auto scaled = hn::BitCast(d, hn::Mul(hn::Mul(hn::Abs(x), first), second));
    const auto c = hn::ShiftRight<23>(hn::Add(scaled, hn::ShiftRight<1>(draw)));
    const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(d, x)), hn::Set(d, 0x80));
    return hn::IfThenZeroElse(hn::Eq(c, hn::Zero(d)), hn::Or(c, sign));
  }
  Floats first, second;
};

template <>
struct VectorDecoder<NaturalRule> {
  explicit VectorDecoder(const NaturalRule::Decoder& p)
      : first(hn::Set(F32(), p.first)), second(hn::Set(F32(), p.second)) {}
  HWY_INLINE Floats value(Words code) const {
    const U32 d;
    const auto power = hn::BitCast(F32(), hn::ShiftRight<1>(hn::And(code, hn::Set(d, 0x7f000000))));
    const auto held = hn::Min(hn::Mul(power, first), hn::Set(F32(), NaturalRule::Decoder::most));
    const auto sign = hn::BitCast(F32(), hn::And(code, hn::Set(d, 0x80000000)));
    return hn::Xor(hn::Mul(held, second), sign);
  }
  Floats first, second;
};
#endif

void NaturalEncode(const detail::EncodeJob& job) { encode_buckets<NaturalRule>(job); }
void NaturalDecode(const detail::DecodeJob& job) { decode_buckets<NaturalRule>(job); }

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {

HWY_EXPORT(NaturalEncode);
HWY_EXPORT(NaturalDecode);

std::unique_ptr<Codec> make_natural8(const core::ParsedName& name) {
  return std::make_unique<detail::Bucketed>(
      name.canonical(), detail::Bucketed::Settings{.layout = {.bucket = detail::bucket_of(name),
                                                              .scale_width = sizeof(detail::NaturalRule::Scale)},
                                                   .fast = {[](const detail::EncodeJob& job) {
                                                              HWY_DYNAMIC_DISPATCH(NaturalEncode)
                                                              (job);
                                                            },
                                                            [](const detail::DecodeJob& job) {
                                                              HWY_DYNAMIC_DISPATCH(NaturalDecode)
                                                              (job);
                                                            }},
                                                   .plain = detail::plain_loops<detail::NaturalRule>});
}

}  // namespace gradmeter::compression
#endif
