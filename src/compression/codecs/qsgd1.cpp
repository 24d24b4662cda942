// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/qsgd1.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/qsgd1.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "compression/detail/bucketed-inl.hpp"
#include "compression/detail/qsgd1_rule.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {

using detail::Qsgd1Rule;

#if HWY_TARGET != HWY_SCALAR
template <>
struct VectorEncoder<detail::Qsgd1Rule> {
  explicit VectorEncoder(const detail::Qsgd1Rule::Encoder& p)
      : prescale(hn::Set(F32(), p.prescale)), factor(hn::Set(F32(), p.factor)) {}
  HWY_INLINE Words code(Floats x, Words draw) const {
    const auto scaled = hn::Mul(hn::Mul(x, prescale), factor);
    const auto chance = hn::ConvertTo(I32(), hn::Add(scaled, hn::Set(F32(), 0x1p23f)));
    return hn::BitCast(U32(), hn::VecFromMask(I32(), hn::Lt(hn::BitCast(I32(), draw), chance)));
  }
  Floats prescale, factor;
};

template <>
struct VectorDecoder<detail::Qsgd1Rule> {
  explicit VectorDecoder(const detail::Qsgd1Rule::Decoder& p)
      : positive(hn::Set(F32(), p.positive)), negative(hn::Set(F32(), p.negative)) {}
  HWY_INLINE Floats value(Words code) const {
    return hn::IfThenElse(hn::MaskFromVec(hn::BitCast(F32(), hn::BroadcastSignBit(hn::BitCast(I32(), code)))), positive,
                          negative);
  }
  Floats positive, negative;
};
#endif

void Qsgd1Encode(const detail::EncodeJob& job) { encode_buckets<detail::Qsgd1Rule>(job); }
void Qsgd1Decode(const detail::DecodeJob& job) { decode_buckets<detail::Qsgd1Rule>(job); }

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {

HWY_EXPORT(Qsgd1Encode);
HWY_EXPORT(Qsgd1Decode);

std::unique_ptr<Codec> make_qsgd1(const core::ParsedName& name) {
  return std::make_unique<detail::Bucketed>(
      name.canonical(),
      detail::Bucketed::Settings{.layout = {.bucket = detail::bucket_of(name), .bits = detail::Qsgd1Rule::bits},
                                 .fast = {[](const detail::EncodeJob& job) {
                                            HWY_DYNAMIC_DISPATCH(Qsgd1Encode)
                                            (job);
                                          },
                                          [](const detail::DecodeJob& job) {
                                            HWY_DYNAMIC_DISPATCH(Qsgd1Decode)
                                            (job);
                                          }},
                                 .plain = detail::plain_loops<detail::Qsgd1Rule>});
}

}  // namespace gradmeter::compression
#endif
