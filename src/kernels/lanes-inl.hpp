// SPDX-License-Identifier: Apache-2.0
// Helpers that vectorised loops share; a lane is one element of a vector register. The file is included once for each
// instruction set, after hwy/foreach_target.h.
#if defined(GRADMETER_KERNELS_LANES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADMETER_KERNELS_LANES_INL
#undef GRADMETER_KERNELS_LANES_INL
#else
#define GRADMETER_KERNELS_LANES_INL
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls body(tag, i) for full vectors first, then for the remaining elements one at a time. The body handles one vector
// of the tag's length, which begins at element i.
template <class Body>
HWY_INLINE void each(std::size_t n, const Body& body) {
  const hn::ScalableTag<float> full;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(full);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) body(full, i);
  for (; i < n; ++i) body(one, i);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE void store(hn::Vec<D> v, D d, float* to) {
  hn::StoreU(v, d, to);
}
// bf16 is the upper half of an fp32.
template <class D>
HWY_INLINE hn::Vec<D> load([[maybe_unused]] D d, const std::uint16_t* from) {
  const hn::Rebind<std::uint16_t, D> half;
  const hn::Rebind<std::uint32_t, D> whole;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(whole, hn::LoadU(half, from))));
}
// Rounds each lane to bf16, to nearest with ties to even, by adding 0x7fff, and one more if the lowest bit of the upper
// half is set. The result is the lane's upper half; the lower half is undefined. A NaN stays a NaN.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<std::uint32_t, D>> upper_halves([[maybe_unused]] D d, hn::Vec<D> v) {
  const hn::Rebind<std::uint32_t, D> whole;
  const auto bits = hn::BitCast(whole, v), odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(whole, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(whole, 0x7fffu)));
  const auto nan = hn::Set(whole, 0x7fc00000u);
  return hn::IfThenElse(hn::RebindMask(whole, hn::IsNaN(v)), nan, rounded);
}
template <class D>
HWY_INLINE void store(hn::Vec<D> v, D d, std::uint16_t* to) {
  const hn::Rebind<std::uint16_t, D> half;
  const hn::Rebind<std::int32_t, D> number;
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(number, hn::ShiftRight<16>(upper_halves(d, v)))), half, to);
}

/// 1 / (1 + exp(-x)), computed from exp(-|x|), which never overflows. The relative error is at most 8·2^-24 where the
/// result is at least 2^-126.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0F), e = hn::Exp(d, hn::Or(x, hn::SignBit(d)));
  const auto share = hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
  return hn::IfThenElse(hn::IsNaN(x), x, share);  // Exp makes 0 of a NaN.
}
/// tanh(x). The relative error is at most 8·2^-24.
template <class D>
HWY_INLINE hn::Vec<D> hyperbolic_tangent(D d, hn::Vec<D> x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x));
}

}  // namespace gradmeter::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
