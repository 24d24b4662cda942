// SPDX-License-Identifier: Apache-2.0
// Operators on two vectors. The vectors' order does not change the bits of the result, except the sign and payload of a
// NaN, which `with_canonical_nan` replaces. The file is included once for each instruction set, hence its unusual
// include guard.
#if defined(GRADMETER_COMBINE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADMETER_COMBINE_INL
#undef GRADMETER_COMBINE_INL
#else
#define GRADMETER_COMBINE_INL
#endif

#include <hwy/highway.h>

#include <limits>
#include <type_traits>

#include "allreduce/reduce.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::allreduce::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
inline constexpr bool has_float_lanes = std::is_floating_point_v<hn::TFromD<D>>;

template <class D, class V, class M>
HWY_INLINE V nan_unless(D d, M ordered, V v) {
  return hn::IfThenElse(ordered, v, hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN()));
}

template <Op op, class D, class V>
HWY_INLINE V extreme(D d, V a, V b) {
  if constexpr (has_float_lanes<D>) {
    const auto a_is_chosen = op == Op::min ? hn::Lt(a, b) : hn::Lt(b, a);
    // Equal numbers can differ in their bits only when they are zeros: min chooses -0, max +0.
    const V if_equal = op == Op::min ? hn::Or(a, b) : hn::And(a, b);
    const V chosen = hn::IfThenElse(hn::Eq(a, b), if_equal, hn::IfThenElse(a_is_chosen, a, b));
    return nan_unless(d, hn::And(hn::Eq(a, a), hn::Eq(b, b)), chosen);
  } else {
    return op == Op::min ? hn::Min(a, b) : hn::Max(a, b);
  }
}

template <Op op, class D, class V>
HWY_INLINE V combine(D d, V a, V b) {
  if constexpr (op == Op::min || op == Op::max) return extreme<op>(d, a, b);
  if constexpr (op == Op::product) return hn::Mul(a, b);
  if constexpr (op == Op::sum) return hn::Add(a, b);
}

/// Replaces any NaN by the quiet NaN of positive sign. To be called after the last combination: until then, a NaN's
/// sign and payload depend on the order of the operands. (`extreme` has replaced them already.)
template <Op op, class D, class V>
HWY_INLINE V with_canonical_nan(D d, V v) {
  if constexpr (has_float_lanes<D> && (op == Op::sum || op == Op::product)) return nan_unless(d, hn::Eq(v, v), v);
  return v;
}

}  // namespace gradmeter::allreduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
