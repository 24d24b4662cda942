// Highway compiles this file once for every instruction set and picks at run time. Each format is decoded to fp32 and
// encoded from it by integer steps that we spell out: Highway's own conversions truncate on some instruction sets and
// round on others, and lose infinities. Where there are instructions for fp16 those serve, for fp8 as well.
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "allreduce/detail/reduce_small_floats.hpp"
#include "core/small_float.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "allreduce/reduce_small_floats.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "allreduce/detail/combine-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::allreduce::HWY_NAMESPACE {

using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<std::uint32_t>;
using I32 = hn::ScalableTag<std::int32_t>;
using Floats = hn::Vec<F32>;
using Words = hn::Vec<U32>;

/// A format whose exponent range is smaller than fp32's.
template <core::SmallFormat f, class StoredCode>
struct Codec {
  using Code = StoredCode;
  static constexpr int shift = 23 - f.mantissa_bits;
  static constexpr std::uint32_t lowest_normal = static_cast<std::uint32_t>(127 + 1 - f.bias()) << 23;
  static constexpr std::uint32_t infinity = 0x7f800000;

  static HWY_INLINE Floats decode(Words code) {
    const U32 du;
    const F32 df;
    const Words magnitude = hn::And(code, hn::Set(du, f.sign() - 1u));
    const Words sign = hn::ShiftLeft<32 - f.bits()>(hn::And(code, hn::Set(du, f.sign())));
    // Re-based, every code has one exponent more than it should where it is subnormal: taking 2^lowest away again
    // leaves just the mantissa's worth.
    const Words rebased = hn::Add(hn::ShiftLeft<shift>(magnitude), hn::Set(du, lowest_normal - (1u << 23)));
    const Words first = hn::Set(du, 1u << f.mantissa_bits);
    const Floats lowest = hn::BitCast(df, hn::Set(du, lowest_normal));
    const Words subnormal = hn::BitCast(du, hn::Sub(hn::BitCast(df, hn::Add(rebased, hn::Set(du, 1u << 23))), lowest));
    Words bits = hn::IfThenElse(less(magnitude, first), subnormal, rebased);
    if constexpr (f.infinities) {
      const Words top = hn::Set(du, f.top_exponent());
      // Infinity keeps its zero mantissa under fp32's highest exponent, and a NaN its quiet bit.
      const Words special = hn::Or(hn::ShiftLeft<shift>(magnitude), hn::Set(du, infinity));
      bits = hn::IfThenElse(less(magnitude, top), bits, special);
    } else {
      bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(du, f.nan())), hn::Set(du, 0x7fc00000), bits);
    }
    return hn::BitCast(df, hn::Or(bits, sign));
  }

  /// |x| + 2^(e + shift), e its exponent, has the place of the format's last bit as its own last bit: the addition
  /// rounds, to nearest even, and leaves the rounded mantissa in the low bits. Subnormals only hold e at the lowest.
  static HWY_INLINE Words encode(Floats x) {
    const U32 du;
    const F32 df;
    const Words bits = hn::BitCast(du, x);
    const Words magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
    const Words sign = hn::And(hn::ShiftRight<32 - f.bits()>(bits), hn::Set(du, f.sign()));
    const Words held = smaller(magnitude, hn::Set(du, too_large()));
    const Words exponent = larger(hn::And(held, hn::Set(du, infinity)), hn::Set(du, lowest_normal));
    const Words magic = hn::Add(exponent, hn::Set(du, static_cast<std::uint32_t>(shift) << 23));
    const Words sum = hn::BitCast(du, hn::Add(hn::BitCast(df, held), hn::BitCast(df, magic)));
    const Words based = hn::ShiftRight<shift>(hn::Sub(exponent, hn::Set(du, lowest_normal)));
    const Words code = hn::Add(hn::Sub(sum, magic), based);
    if constexpr (f.infinities) {
      return hn::IfThenElse(less(hn::Set(du, infinity), magnitude), hn::Set(du, f.nan()), hn::Or(code, sign));
    } else {
      const Words nan = hn::Set(du, f.nan());
      return hn::IfThenElse(hn::Eq(code, nan), nan, hn::Or(code, sign));
    }
  }

 private:
  /// The first number above the largest: its own code is infinity's, or e4m3's NaN.
  static constexpr std::uint32_t too_large() {
    if (f.infinities) return static_cast<std::uint32_t>(f.bias() + 1 + 127) << 23;
    return std::bit_cast<std::uint32_t>(480.0f);
  }
  // Magnitudes are below 2^31: signed comparisons serve, which SSE has.
  static HWY_INLINE auto less(Words a, Words b) {
    return hn::RebindMask(U32(), hn::Lt(hn::BitCast(I32(), a), hn::BitCast(I32(), b)));
  }
  static HWY_INLINE Words smaller(Words a, Words b) {
    return hn::BitCast(U32(), hn::Min(hn::BitCast(I32(), a), hn::BitCast(I32(), b)));
  }
  static HWY_INLINE Words larger(Words a, Words b) {
    return hn::BitCast(U32(), hn::Max(hn::BitCast(I32(), a), hn::BitCast(I32(), b)));
  }
};

/// bf16 is the upper half of an fp32.
struct UpperHalf {
  using Code = std::uint16_t;
  static HWY_INLINE Floats decode(Words code) { return hn::BitCast(F32(), hn::ShiftLeft<16>(code)); }
  static HWY_INLINE Words encode(Floats x) {
    const U32 du;
    const Words bits = hn::BitCast(du, x);
    const Words odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const Words rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff))));
    return hn::IfThenElse(hn::RebindMask(du, hn::Eq(x, x)), rounded, hn::Set(du, core::bf16_format.nan()));
  }
};

/// Codes in memory to lanes of 32 bits and back.
template <class C>
struct Exact : C {
  using Packed = hn::Rebind<typename C::Code, U32>;
  static HWY_INLINE Words fetch(const std::byte* from) {
    return hn::PromoteTo(U32(), hn::LoadU(Packed(), reinterpret_cast<const typename C::Code*>(from)));
  }
  static HWY_INLINE void put(Words codes, std::byte* to) {
    hn::StoreU(hn::DemoteTo(Packed(), hn::BitCast(I32(), codes)), Packed(), reinterpret_cast<typename C::Code*>(to));
  }
  static HWY_INLINE Floats unscaled(Floats v) { return v; }
};
using Half = Exact<Codec<core::fp16_format, std::uint16_t>>;
using Bf16 = Exact<UpperHalf>;
using E4m3 = Exact<Codec<core::e4m3_format, std::uint8_t>>;
using E5m2 = Exact<Codec<core::e5m2_format, std::uint8_t>>;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// These have instructions between fp16 and fp32, which round to nearest even. The fp8 formats are cut-off fp16 (e4m3
// after a scaling by 2^-8, the distance of the biases); and a sum of two is rounded rightly by way of fp16, because
// fp16 has 2p + 2 bits for their p (Figueroa 1995) and their subnormals are multiples of its own. Not so a product of
// two, nor anything that was rounded to fp32 before.
using U16 = hn::Rebind<std::uint16_t, U32>;
using F16 = hn::Rebind<hwy::float16_t, U32>;
using Halves = hn::Vec<U16>;

HWY_INLINE Floats from_halves(Halves v) { return hn::PromoteTo(F32(), hn::BitCast(F16(), v)); }
HWY_INLINE Halves to_halves(Floats v) { return hn::BitCast(U16(), hn::DemoteTo(F16(), v)); }
/// The upper bits of each, without the lowest `cut`, to nearest even.
template <int cut>
HWY_INLINE Halves cut_off(Halves v) {
  const Halves odd = hn::And(hn::ShiftRight<cut>(v), hn::Set(U16(), 1));
  return hn::ShiftRight<cut>(hn::Add(hn::Add(v, odd), hn::Set(U16(), (1u << (cut - 1)) - 1)));
}

struct FastHalf {
  using Code = std::uint16_t;
  static HWY_INLINE Halves fetch(const std::byte* from) {
    return hn::LoadU(U16(), reinterpret_cast<const Code*>(from));
  }
  static HWY_INLINE void put(Halves v, std::byte* to) { hn::StoreU(v, U16(), reinterpret_cast<Code*>(to)); }
  static HWY_INLINE Floats decode(Halves v) { return from_halves(v); }
  static HWY_INLINE Halves encode(Floats v) { return to_halves(settled<Op::sum>(F32(), v)); }
  static HWY_INLINE Floats unscaled(Floats v) { return v; }
};

struct FastBytes {
  using Code = std::uint8_t;
  using Packed = hn::Rebind<std::uint8_t, U32>;
  static HWY_INLINE Halves fetch(const std::byte* from) {
    return hn::PromoteTo(U16(), hn::LoadU(Packed(), reinterpret_cast<const Code*>(from)));
  }
  static HWY_INLINE void put(Halves v, std::byte* to) {
    const hn::Rebind<std::int16_t, U32> signed_halves;
    hn::StoreU(hn::DemoteTo(Packed(), hn::BitCast(signed_halves, v)), Packed(), reinterpret_cast<Code*>(to));
  }
};

struct FastE5m2 : FastBytes {
  static HWY_INLINE Floats decode(Halves v) { return from_halves(hn::ShiftLeft<8>(v)); }
  static HWY_INLINE Halves encode(Floats v) { return cut_off<8>(to_halves(settled<Op::sum>(F32(), v))); }
  static HWY_INLINE Floats unscaled(Floats v) { return v; }
};

struct FastE4m3 : FastBytes {
  static HWY_INLINE Floats decode(Halves v) {
    const Halves nan = hn::Set(U16(), 0x7f), magnitude = hn::And(v, nan);
    const Halves bits = hn::Add(hn::ShiftLeft<7>(v), hn::ShiftLeft<7>(hn::And(v, hn::Set(U16(), 0x80))));
    // The sign is at 2^7·128 = 2^14 after the shift: doubled, it is at 2^15, and what it left behind is carried away.
    return from_halves(hn::IfThenElse(hn::Eq(magnitude, nan), hn::Set(U16(), 0x7e00), bits));
  }
  static HWY_INLINE Halves encode(Floats v) {
    const Halves bits = to_halves(v), nan = hn::Set(U16(), 0x7f);
    const Halves code = hn::Min(cut_off<7>(hn::And(bits, hn::Set(U16(), 0x7fff))), nan);
    const Halves sign = hn::And(hn::ShiftRight<8>(bits), hn::Set(U16(), 0x80));
    return hn::IfThenElse(hn::Eq(code, nan), nan, hn::Or(code, sign));
  }
  static HWY_INLINE Floats unscaled(Floats v) { return hn::Mul(v, hn::Set(F32(), 256.0f)); }
};
#else
using FastHalf = Half;
using FastE4m3 = E4m3;
using FastE5m2 = E5m2;
#endif

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

/// The last elements, less than a vector of them: padded with zeros to one.
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

/// `Fast` may round sums of two; `Slow` is right for everything.
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
  // fp16's conversion instruction rounds anything rightly.
  if (e == core::Element::f16) return combine_format<FastHalf, FastHalf>(wide, op, to, sources, n);
  if (e == core::Element::bf16) return combine_format<Bf16, Bf16>(wide, op, to, sources, n);
  if (e == core::Element::e4m3) return combine_format<FastE4m3, E4m3>(wide, op, to, sources, n);
  combine_format<FastE5m2, E5m2>(wide, op, to, sources, n);
}

/// Every whole vector of `from` through `step`, and the rest padded to one.
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
