// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/lns4.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/lns4.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "compression/detail/bucketed-inl.hpp"
#include "compression/detail/lns4_rule.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {

using detail::Lns4Rule;

#if HWY_TARGET != HWY_SCALAR
template <>
struct VectorEncoder<Lns4Rule> {
  explicit VectorEncoder(const Lns4Rule::Encoder& p)
      : prescale(hn::Set(F32(), p.prescale)), factor(hn::Set(F32(), p.factor)) {}
  HWY_INLINE Words code(Floats x, Words draw) const {
    const U32 d;
    const auto scaled = hn::Mul(hn::Mul(hn::Abs(x), prescale), factor);
    const auto share = hn::Min(scaled, hn::Set(F32(), 1.0f));
    const auto below = hn::Lt(share, hn::Set(F32(), Lns4Rule::lowest));
    // What is not below is not converted: it would leave the integers.
    const auto small = hn::Mul(hn::IfThenElseZero(below, share), hn::Set(F32(), Lns4Rule::to_lowest));
    const auto place = hn::IfThenElse(hn::RebindMask(d, below), hn::BitCast(d, hn::ConvertTo(I32(), small)),
                                      hn::Sub(hn::BitCast(d, share), hn::Set(d, Lns4Rule::base)));
    const auto level = hn::ShiftRight<23>(hn::Add(place, hn::ShiftRight<1>(draw)));
    const auto sign = hn::And(hn::ShiftRight<28>(hn::BitCast(d, x)), hn::Set(d, 8));
    return hn::IfThenZeroElse(hn::Eq(level, hn::Zero(d)), hn::Or(level, sign));
  }
  Floats prescale, factor;
};

template <>
struct VectorDecoder<Lns4Rule> {
  explicit VectorDecoder(const Lns4Rule::Decoder& p) : norm(hn::Set(F32(), p.norm)) {}
  HWY_INLINE Floats value(Words code) const {
    const U32 d;
    const auto level = hn::ShiftRight<5>(hn::And(code, hn::Set(d, 0x70000000)));
    const auto power = hn::Add(level, hn::Set(d, Lns4Rule::base));
    const auto share = hn::BitCast(F32(), hn::IfThenZeroElse(hn::Eq(level, hn::Zero(d)), power));
    return hn::Xor(hn::Mul(share, norm), hn::BitCast(F32(), hn::And(code, hn::Set(d, 0x80000000))));
  }
  Floats norm;
};
#endif

void Lns4Encode(const detail::EncodeJob& job) { encode_buckets<Lns4Rule>(job); }
void Lns4Decode(const detail::DecodeJob& job) { decode_buckets<Lns4Rule>(job); }

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {

HWY_EXPORT(Lns4Encode);
HWY_EXPORT(Lns4Decode);

std::unique_ptr<Codec> make_lns4(const core::ParsedName& name) {
  return std::make_unique<detail::Bucketed>(
      name.canonical(),
      detail::Bucketed::Settings{.layout = {.bucket = detail::bucket_of(name), .bits = detail::Lns4Rule::bits},
                                 .fast = {[](const detail::EncodeJob& job) {
                                            HWY_DYNAMIC_DISPATCH(Lns4Encode)
                                            (job);
                                          },
                                          [](const detail::DecodeJob& job) {
                                            HWY_DYNAMIC_DISPATCH(Lns4Decode)
                                            (job);
                                          }},
                                 .plain = detail::plain_loops<detail::Lns4Rule>});
}

}  // namespace gradmeter::compression
#endif
