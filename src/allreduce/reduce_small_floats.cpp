// SPDX-License-Identifier: Apache-2.0
// Highway compiles this file once for every instruction set and picks at run time.
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "allreduce/reduce.hpp"
#include "core/element.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "allreduce/reduce_small_floats.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "allreduce/detail/combine-inl.hpp"
#include "core/small_float-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::allreduce::HWY_NAMESPACE {

namespace small = core::HWY_NAMESPACE;
using small::Bf16, small::E4m3, small::E5m2, small::F32, small::FastE4m3, small::FastE5m2, small::FastHalf;
using small::Floats;

using Sources = std::span<const std::byte* const>;

template <class C, class Out>
HWY_INLINE void save(Floats v, std::byte* to) {
  if constexpr (std::is_same_v<C, Out>) {
    C::put(C::encode(v), to);
  } else {
    Out::put(Out::encode(C::unscaled(v)), to);
  }
}

template <class C, Op op, bool wide, std::size_t known>
HWY_INLINE Floats combined(Sources sources, std::size_t at) {
  const F32 d;
  const auto load = [&](std::size_t k)
                        HWY_ATTR { return C::decode(C::fetch(sources[k] + at * sizeof(typename C::Code))); };
  Floats v = combine<op>(d, load(0), load(1));
  for (std::size_t k = 2; k < (known ? known : sources.size()); ++k) {
    if constexpr (!wide) v = C::decode(C::encode(v));
    v = combine<op>(d, v, load(k));
  }
  return v;
}

/// Combines the last elements, fewer than a vector holds, padded with zeros.
template <class C, Op op, bool wide, class Out>
void combine_tail(std::byte* to, Sources sources, std::size_t at, std::size_t n) {
  constexpr std::size_t most = HWY_MAX_BYTES / sizeof(float), width = sizeof(typename C::Code);
  std::array<std::byte, most * width> piece{};
  std::memcpy(piece.data(), sources[0] + at * width, n * width);
  Floats v = C::decode(C::fetch(piece.data()));
  for (std::size_t k = 1; k < sources.size(); ++k) {
    if constexpr (!wide) v = k > 1 ? C::decode(C::encode(v)) : v;
    std::memcpy(piece.data(), sources[k] + at * width, n * width);
    v = combine<op>(F32(), v, C::decode(C::fetch(piece.data())));
  }
  save<C, Out>(v, piece.data());
  std::memcpy(to + at * width, piece.data(), n * width);
}

template <class C, Op op, bool wide, class Out, std::size_t known = 0>
void combine_all(std::byte* to, Sources sources, std::size_t n) {
  constexpr std::size_t width = sizeof(typename C::Code);
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const Floats x = combined<C, op, wide, known>(sources, i), y = combined<C, op, wide, known>(sources, i + lanes);
    save<C, Out>(x, to + i * width);
    save<C, Out>(y, to + (i + lanes) * width);
  }
  for (; i + lanes <= n; i += lanes) save<C, Out>(combined<C, op, wide, known>(sources, i), to + i * width);
  if (i < n) combine_tail<C, op, wide, Out>(to, sources, i, n - i);
}

/// Two ways to round a format: `Fast` is right for sums of two of its values only, `Slow` for any fp32.
template <class Fast, class Slow>
void combine_format(bool wide, Op op, std::byte* to, Sources sources, std::size_t n) {
  if (op == Op::min) return combine_all<Fast, Op::min, true, Fast>(to, sources, n);
  if (op == Op::max) return combine_all<Fast, Op::max, true, Fast>(to, sources, n);
  if (op == Op::product) {
    return wide ? combine_all<Slow, Op::product, true, Slow>(to, sources, n)
                : combine_all<Slow, Op::product, false, Slow>(to, sources, n);
  }
  if (sources.size() == 2) return combine_all<Fast, Op::sum, true, Fast, 2>(to, sources, n);
  return wide ? combine_all<Fast, Op::sum, true, Slow>(to, sources, n)
              : combine_all<Fast, Op::sum, false, Fast>(to, sources, n);
}

void CombineSmall(core::Element e, bool wide, Op op, std::byte* to, Sources sources, std::size_t n) {
  // fp16's conversion instruction rounds any value correctly.
  if (e == core::Element::f16) return combine_format<FastHalf, FastHalf>(wide, op, to, sources, n);
  if (e == core::Element::bf16) return combine_format<Bf16, Bf16>(wide, op, to, sources, n);
  if (e == core::Element::e4m3) return combine_format<FastE4m3, E4m3>(wide, op, to, sources, n);
  combine_format<FastE5m2, E5m2>(wide, op, to, sources, n);
}

/// Applies `step` to every vector of `from`; the last one is padded with zeros.
template <class In, class Out, class Step>
HWY_INLINE void map(const std::byte* from, std::byte* to, std::size_t n, Step step) {
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) step(from + i * sizeof(In), to + i * sizeof(Out));
  if (i == n) return;
  std::array<std::byte, HWY_MAX_BYTES / sizeof(float) * sizeof(In)> in{};
  std::array<std::byte, HWY_MAX_BYTES / sizeof(float) * sizeof(Out)> out{};
  std::memcpy(in.data(), from + i * sizeof(In), (n - i) * sizeof(In));
  step(in.data(), out.data());
  std::memcpy(to + i * sizeof(Out), out.data(), (n - i) * sizeof(Out));
}

template <class Function>
void with_codec(core::Element e, Function function) {
  if (e == core::Element::f16) return function(FastHalf());
  if (e == core::Element::bf16) return function(Bf16());
  if (e == core::Element::e4m3) return function(E4m3());
  function(E5m2());
}

void ScaleSmall(core::Element e, std::byte* to, const std::byte* from, std::size_t n, float factor) {
  with_codec(e, [&]<class C>(C) HWY_ATTR {
    const auto f = hn::Set(F32(), factor);
    map<typename C::Code, typename C::Code>(from, to, n, [&](const std::byte* a, std::byte* b) HWY_ATTR {
      C::put(C::encode(hn::Mul(C::decode(C::fetch(a)), f)), b);
    });
  });
}

void Widen(core::Element e, float* to, const std::byte* from, std::size_t n) {
  with_codec(e, [&]<class C>(C) HWY_ATTR {
    map<typename C::Code, float>(from, reinterpret_cast<std::byte*>(to), n,
                                 [](const std::byte* a, std::byte* b) HWY_ATTR {
                                   hn::StoreU(C::decode(C::fetch(a)), F32(), reinterpret_cast<float*>(b));
                                 });
  });
}

void Narrow(core::Element e, std::byte* to, const float* from, std::size_t n) {
  with_codec(e, [&]<class C>(C) HWY_ATTR {
    map<float, typename C::Code>(reinterpret_cast<const std::byte*>(from), to, n,
                                 [](const std::byte* a, std::byte* b) HWY_ATTR {
                                   C::put(C::encode(hn::LoadU(F32(), reinterpret_cast<const float*>(a))), b);
                                 });
  });
}

}  // namespace gradmeter::allreduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::allreduce {

HWY_EXPORT(CombineSmall);
HWY_EXPORT(ScaleSmall);
HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);

void detail::reduce_small_floats(core::Element e, bool wide, Op op, std::byte* destination,
                                 std::span<const std::byte* const> sources, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(CombineSmall)(e, wide, op, destination, sources, n);
}
void detail::scale_small_floats(core::Element e, std::byte* destination, const std::byte* source, std::size_t n,
                                float factor) {
  HWY_DYNAMIC_DISPATCH(ScaleSmall)(e, destination, source, n, factor);
}
void widen(core::Element from, float* destination, const std::byte* source, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(Widen)(from, destination, source, n);
}
void narrow(core::Element to, std::byte* destination, const float* source, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(Narrow)(to, destination, source, n);
}

}  // namespace gradmeter::allreduce
#endif
