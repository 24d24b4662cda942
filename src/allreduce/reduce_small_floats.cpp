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

/// Writes a vector whose scale is that of `Format`, encoded as `OutFormat`.
template <class Format, class OutFormat>
HWY_INLINE void encode_to(Floats v, std::byte* to) {
  if constexpr (std::is_same_v<Format, OutFormat>) {
    Format::put(Format::encode(v), to);
  } else {
    OutFormat::put(OutFormat::encode(Format::to_true_scale(v)), to);
  }
}

/// One vector of the result, from element `at` on. Unless `wide`, the result of each operation is rounded to the
/// format. known_sources: the number of sources if it is known when compiling, else 0.
template <class Format, Op op, bool wide, std::size_t known_sources>
HWY_INLINE Floats combined(Sources sources, std::size_t at) {
  const F32 d;
  const auto load = [&](std::size_t k) HWY_ATTR {
    return Format::decode(Format::fetch(sources[k] + at * sizeof(typename Format::Code)));
  };
  Floats v = combine<op>(d, load(0), load(1));
  for (std::size_t k = 2; k < (known_sources ? known_sources : sources.size()); ++k) {
    if constexpr (!wide) v = Format::decode(Format::encode(v));
    v = combine<op>(d, v, load(k));
  }
  return v;
}

/// Combines the last elements, fewer than a vector holds, padded with zeros.
template <class Format, Op op, bool wide, class OutFormat>
void combine_tail(std::byte* to, Sources sources, std::size_t at, std::size_t n) {
  constexpr std::size_t most_lanes = HWY_MAX_BYTES / sizeof(float), width = sizeof(typename Format::Code);
  std::array<std::byte, most_lanes * width> padded{};
  std::memcpy(padded.data(), sources[0] + at * width, n * width);
  Floats v = Format::decode(Format::fetch(padded.data()));
  for (std::size_t k = 1; k < sources.size(); ++k) {
    if constexpr (!wide) v = k > 1 ? Format::decode(Format::encode(v)) : v;
    std::memcpy(padded.data(), sources[k] + at * width, n * width);
    v = combine<op>(F32(), v, Format::decode(Format::fetch(padded.data())));
  }
  encode_to<Format, OutFormat>(v, padded.data());
  std::memcpy(to + at * width, padded.data(), n * width);
}

/// Combines the sources into n elements of `OutFormat`.
template <class Format, Op op, bool wide, class OutFormat, std::size_t known_sources = 0>
void combine_all(std::byte* to, Sources sources, std::size_t n) {
  constexpr std::size_t width = sizeof(typename Format::Code);
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const Floats x = combined<Format, op, wide, known_sources>(sources, i),
                 y = combined<Format, op, wide, known_sources>(sources, i + lanes);
    encode_to<Format, OutFormat>(x, to + i * width);
    encode_to<Format, OutFormat>(y, to + (i + lanes) * width);
  }
  for (; i + lanes <= n; i += lanes)
    encode_to<Format, OutFormat>(combined<Format, op, wide, known_sources>(sources, i), to + i * width);
  if (i < n) combine_tail<Format, op, wide, OutFormat>(to, sources, i, n - i);
}

/// Fast, Slow: two ways to round to the same format. `Fast` is right only for sums of two values of the format, `Slow`
/// for any fp32.
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

/// Calls step(from, to) for the addresses of every vector; the last vector is padded with zeros.
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

/// Calls function(format) for the element's format, in the form whose encode rounds any fp32 correctly.
template <class Function>
void with_format(core::Element e, Function function) {
  if (e == core::Element::f16) return function(FastHalf());
  if (e == core::Element::bf16) return function(Bf16());
  if (e == core::Element::e4m3) return function(E4m3());
  function(E5m2());
}

void ScaleSmall(core::Element e, std::byte* to, const std::byte* from, std::size_t n, float factor) {
  with_format(e, [&]<class Format>(Format) HWY_ATTR {
    const auto f = hn::Set(F32(), factor);
    map<typename Format::Code, typename Format::Code>(from, to, n, [&](const std::byte* a, std::byte* b) HWY_ATTR {
      Format::put(Format::encode(hn::Mul(Format::decode(Format::fetch(a)), f)), b);
    });
  });
}

void Widen(core::Element e, float* to, const std::byte* from, std::size_t n) {
  with_format(e, [&]<class Format>(Format) HWY_ATTR {
    map<typename Format::Code, float>(
        from, reinterpret_cast<std::byte*>(to), n, [](const std::byte* a, std::byte* b) HWY_ATTR {
          hn::StoreU(Format::decode(Format::fetch(a)), F32(), reinterpret_cast<float*>(b));
        });
  });
}

void Narrow(core::Element e, std::byte* to, const float* from, std::size_t n) {
  with_format(e, [&]<class Format>(Format) HWY_ATTR {
    map<float, typename Format::Code>(
        reinterpret_cast<const std::byte*>(from), to, n, [](const std::byte* a, std::byte* b) HWY_ATTR {
          Format::put(Format::encode(hn::LoadU(F32(), reinterpret_cast<const float*>(a))), b);
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
