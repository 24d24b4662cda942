// QSGD's arithmetic for a vector. Included once for each instruction set, so the include guard is unusual.
#if defined(GRADMETER_QSGD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADMETER_QSGD_INL
#undef GRADMETER_QSGD_INL
#else
#define GRADMETER_QSGD_INL
#endif

#include "compression/detail/bucketed-inl.hpp"
#include "compression/detail/qsgd_rule.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

template <std::size_t bits, detail::Rounding rounding>
struct VectorEncoder<detail::QsgdRule<bits, rounding>> {
  using Plain = typename detail::QsgdRule<bits, rounding>::Encoder;
  explicit VectorEncoder(const Plain& p) : prescale(hn::Set(F32(), p.prescale)), factor(hn::Set(F32(), p.factor)) {}
  HWY_INLINE Words code(Floats x, Words draw) const {
    const auto prescaled = hn::Mul(hn::Mul(hn::Abs(x), prescale), factor);
    const auto level = hn::ConvertTo(I32(), hn::Min(prescaled, hn::Set(F32(), Plain::cap)));
    const auto q = hn::BitCast(I32(), hn::ShiftRight<24>(hn::Add(hn::BitCast(U32(), level), draw)));
    const auto sign = hn::BroadcastSignBit(hn::BitCast(I32(), x));
    return hn::BitCast(U32(), hn::Sub(hn::Xor(q, sign), sign));
  }
  Floats prescale, factor;
};

template <std::size_t bits, detail::Rounding rounding>
struct VectorDecoder<detail::QsgdRule<bits, rounding>> {
  using Plain = typename detail::QsgdRule<bits, rounding>::Decoder;
  explicit VectorDecoder(const Plain& p) : norm(hn::Set(F32(), p.norm)) {}
  HWY_INLINE Floats value(Words code) const {
    const auto q = hn::ConvertTo(F32(), hn::ShiftRight<32 - bits>(hn::BitCast(I32(), code)));
    return hn::Mul(hn::Mul(q, hn::Set(F32(), Plain::inverse)), norm);
  }
  Floats norm;
};

#endif
}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
