// SPDX-License-Identifier: Apache-2.0
// Highway compiles this file once for every instruction set and picks at run time.
#include "allreduce/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/error.hpp"
#include "core/format.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "allreduce/reduce.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "allreduce/detail/combine-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::allreduce::HWY_NAMESPACE {

using Sources = std::span<const std::byte* const>;

/// One vector of the result, from element `at` on. known_sources: the number of sources if it is known when
/// compiling, else 0.
template <Op op, std::size_t known_sources, class D>
HWY_INLINE auto combined(D d, Sources sources, std::size_t at) {
  using T = hn::TFromD<D>;
  const auto load = [&](std::size_t k) HWY_ATTR { return hn::LoadU(d, reinterpret_cast<const T*>(sources[k]) + at); };
  auto v = combine<op>(d, load(0), load(1));
  for (std::size_t k = 2; k < (known_sources ? known_sources : sources.size()); ++k) v = combine<op>(d, v, load(k));
  return with_canonical_nan<op>(d, v);
}

/// Combines whole vectors from element i on; returns the first element that is left, fewer than a vector before the
/// end.
template <Op op, std::size_t known_sources, class D>
HWY_INLINE std::size_t combine_whole(D d, hn::TFromD<D>* to, Sources sources, std::size_t i, std::size_t n) {
  const std::size_t lanes = hn::Lanes(d);
  for (; i + lanes <= n; i += lanes) hn::StoreU(combined<op, known_sources>(d, sources, i), d, to + i);
  return i;
}

template <Op op, std::size_t known_sources, class T>
void combine_vectors(T* to, Sources sources, std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto x = combined<op, known_sources>(d, sources, i);
    const auto y = combined<op, known_sources>(d, sources, i + lanes);
    hn::StoreU(x, d, to + i);
    hn::StoreU(y, d, to + i + lanes);
  }
  i = combine_whole<op, known_sources>(d, to, sources, i, n);
  // The rest also goes through vectors, which are shorter, so that the same rules apply.
  i = combine_whole<op, known_sources>(hn::CappedTag<T, 16 / sizeof(T)>(), to, sources, i, n);
  combine_whole<op, known_sources>(hn::CappedTag<T, 1>(), to, sources, i, n);
}

/// Multiplies integers for which Highway has no vectors, as unsigned integers, which wrap. Integers shorter than an
/// `int` are widened to `unsigned`, since C++ would make a signed `int` of them.
template <class T>
void multiply_each(T* to, Sources sources, std::size_t n) {
  using Wraps = std::conditional_t<sizeof(T) < sizeof(int), unsigned, std::make_unsigned_t<T>>;
  for (std::size_t i = 0; i < n; ++i) {
    Wraps v = 1;
    for (const std::byte* from : sources) v *= static_cast<Wraps>(reinterpret_cast<const T*>(from)[i]);
    to[i] = static_cast<T>(v);
  }
}

template <Op op, class T>
void combine_typed(std::byte* to, Sources sources, std::size_t n) {
  auto* typed = reinterpret_cast<T*>(to);
  constexpr bool has_vectors = op != Op::product || std::is_floating_point_v<T> || sizeof(T) == sizeof(std::int32_t);
  if constexpr (!has_vectors) {
    multiply_each(typed, sources, n);
  } else if (sources.size() == 2) {
    combine_vectors<op, 2>(typed, sources, n);
  } else if (sources.size() == 3) {
    combine_vectors<op, 3>(typed, sources, n);
  } else if (sources.size() == 4) {
    combine_vectors<op, 4>(typed, sources, n);
  } else {
    combine_vectors<op, 0>(typed, sources, n);
  }
}

template <Op op>
void combine_by_type(core::Element e, std::byte* to, Sources sources, std::size_t n) {
  if (e == core::Element::f64) return combine_typed<op, double>(to, sources, n);
  if (e == core::Element::f32) return combine_typed<op, float>(to, sources, n);
  if (e == core::Element::i64) return combine_typed<op, std::int64_t>(to, sources, n);
  if (e == core::Element::i32) return combine_typed<op, std::int32_t>(to, sources, n);
  combine_typed<op, std::int8_t>(to, sources, n);
}

void CombineSources(core::Element e, Op op, std::byte* to, Sources sources, std::size_t n) {
  if (op == Op::min) return combine_by_type<Op::min>(e, to, sources, n);
  if (op == Op::max) return combine_by_type<Op::max>(e, to, sources, n);
  if (op == Op::product) return combine_by_type<Op::product>(e, to, sources, n);
  combine_by_type<Op::sum>(e, to, sources, n);
}

template <class T>
void multiply(T* to, const T* from, std::size_t n, T factor) {
  const hn::ScalableTag<T> d;
  const auto f = hn::Set(d, factor);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) hn::StoreU(hn::Mul(hn::LoadU(d, from + i), f), d, to + i);
  for (; i < n; ++i) to[i] = from[i] * factor;
}

void ScaleFloats(core::Element e, std::byte* to, const std::byte* from, std::size_t n, double factor) {
  if (e == core::Element::f32) {
    return multiply(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from), n, static_cast<float>(factor));
  }
  multiply(reinterpret_cast<double*>(to), reinterpret_cast<const double*>(from), n, factor);
}

}  // namespace gradmeter::allreduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::allreduce {

HWY_EXPORT(CombineSources);
HWY_EXPORT(ScaleFloats);

std::string_view name(Op op) {
  constexpr std::array<std::string_view, 5> names{"sum", "avg", "min", "max", "prod"};
  return names[static_cast<std::size_t>(op)];
}

void reduce(core::Element e, core::Element accumulate, Op op, std::byte* destination,
            std::span<const std::byte* const> sources, std::size_t n) {
  if (core::is_small_float(e)) return detail::reduce_small_floats(e, accumulate != e, op, destination, sources, n);
  HWY_DYNAMIC_DISPATCH(CombineSources)(e, op, destination, sources, n);
}

void finish(core::Element e, Op op, std::byte* destination, const std::byte* source, std::size_t n, int ranks) {
  if (op == Op::average && ranks > 1) {
    const double factor = 1.0 / ranks;
    if (core::is_small_float(e)) {
      return detail::scale_small_floats(e, destination, source, n, static_cast<float>(factor));
    }
    HWY_DYNAMIC_DISPATCH(ScaleFloats)(e, destination, source, n, factor);
  } else if (destination != source && n > 0) {
    std::memcpy(destination, source, n * core::size_of(e));
  }
}

void check_supported(core::Element e, Op op, core::Element accumulate) {
  if (op == Op::average && core::is_integer(e)) {
    throw core::UsageError(fmt::format("operation avg is not defined for {}; use sum", core::info(e).name));
  }
  if (accumulate != e && !(core::is_small_float(e) && accumulate == core::Element::f32)) {
    throw core::UsageError(fmt::format("{} is not accumulated in {}: give {}, or fp32 for 16-bit and 8-bit floats",
                                       core::info(e).name, core::info(accumulate).name, core::info(e).name));
  }
}

}  // namespace gradmeter::allreduce
#endif
