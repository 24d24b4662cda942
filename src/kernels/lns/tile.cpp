// SPDX-License-Identifier: Apache-2.0
#include "kernels/lns/tile.hpp"

#include "kernels/lns/lns.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lns/tile.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<std::uint16_t>;
using Words = hn::Vec<Tag>;
using detail::LnsChecks;
using detail::LnsFactor;
using detail::LnsTile;
constexpr std::size_t rows = detail::lns_tile_rows, group = 4;

std::size_t Lanes() { return hn::Lanes(Tag()); }

HWY_INLINE Words Broadcast(std::uint16_t value) { return hn::Set(Tag(), value); }

#if HWY_TARGET <= HWY_AVX3
// A table of 64 words in two registers, in which vpermi2w looks up 32 words at once.
struct TablePair {
  __m512i low, high;
  explicit TablePair(const std::int16_t* table)
      : low(_mm512_loadu_si512(table)), high(_mm512_loadu_si512(table + 32)) {}
  __m512i operator()(__m512i index) const { return _mm512_permutex2var_epi16(low, index, high); }
};

// Computes G for a vector of distances from the arcs. F, the number of fraction bits, is a template parameter, so that
// shifts are constants.
template <unsigned F, LnsArcKind arc>
struct GByArcs {
  static constexpr unsigned shift = F - 2;
  TablePair value, slope, curve, near0, near1, near2, near3;
  __m512i last_entry;
  explicit GByArcs(const LnsArcs& k)
      : value(k.value.data()),
        slope(k.slope.data()),
        curve(k.curve.data()),
        near0(k.near.data()),
        near1(k.near.data() + 64),
        near2(k.near.data() + 128),
        near3(k.near.data() + 192),
        last_entry(_mm512_set1_epi16(static_cast<std::int16_t>(k.entries - 1))) {}

  // Computes G− in the lanes of `opposite` and G+ in others, by arcs. `d` is the distance of the codes.
  HWY_INLINE __m512i FromArc(__m512i d, __mmask32 opposite) const {
    const __m512i clamped = _mm512_min_epu16(d, _mm512_set1_epi16((8 << F) - 1));
    __m512i place = _mm512_slli_epi16(clamped, 15 - shift), i = _mm512_srli_epi16(clamped, shift);
    if (arc == LnsArcKind::line) {
      place = _mm512_and_si512(place, _mm512_set1_epi16(0x7fff));
      i = _mm512_mask_add_epi16(i, opposite, i, _mm512_set1_epi16(LnsArcs::first_minus_line));
    } else {
      constexpr std::int16_t to_middle = (2 * LnsArcs::first_plus_parabola + 1) << shift;
      const __m512i equal = _mm512_srli_epi16(_mm512_add_epi16(clamped, _mm512_set1_epi16(to_middle)), shift + 1);
      i = _mm512_add_epi16(i, _mm512_set1_epi16(LnsArcs::extra_parabolas));
      i = _mm512_mask_min_epu16(equal, opposite, _mm512_srli_epi16(clamped, shift - 2), i);
    }
    __m512i climb = slope(i);
    if (arc == LnsArcKind::parabola) climb = _mm512_add_epi16(climb, _mm512_mulhi_epi16(curve(i), place));
    const __m512i g = _mm512_add_epi16(value(i), _mm512_mulhi_epi16(climb, place));
    return _mm512_mulhi_epi16(g, _mm512_set1_epi16(LnsArcs::unit(arc)));
  }

  // Looks up G− in the single entries, for d below LnsArcs::near_count.
  HWY_INLINE __m512i Near(__m512i d) const {
    if (arc == LnsArcKind::parabola) return near0(d);
    const __mmask32 odd = _mm512_test_epi16_mask(d, _mm512_set1_epi16(64));
    const __mmask32 upper = _mm512_test_epi16_mask(d, _mm512_set1_epi16(128));
    const __m512i low = _mm512_mask_mov_epi16(near0(d), odd, near1(d));
    const __m512i high = _mm512_mask_mov_epi16(near2(d), odd, near3(d));
    return _mm512_mask_mov_epi16(low, upper, high);
  }

  // Adds G to the larger of two codes, in the lanes that have a bit in `lanes`.
  HWY_INLINE __m512i operator()(__m512i larger, __m512i d, __mmask32 opposite, __mmask32 lanes) const {
    const __mmask32 is_near = _mm512_mask_cmplt_epu16_mask(opposite, d, _mm512_set1_epi16(LnsArcs::near_count(arc)));
    const __m512i g = _mm512_mask_mov_epi16(FromArc(d, opposite), is_near, Near(d));
    return _mm512_mask_adds_epi16(larger, _mm512_mask_cmple_epu16_mask(lanes, d, last_entry), larger, g);
  }
};

// Computes a tile with AVX-512. Words are taken apart into signed codes and a mask of signs. Numbers that cancel leave
// a code that is not positive, which stands for zero in later sums.
template <LnsChecks checks, unsigned F, LnsArcKind arc>
void ByPermutes(const LnsTile& t) {
  constexpr std::size_t lanes = 32, stride = detail::lns_tile_copies(checks) * lanes;
  constexpr bool checked = checks == LnsChecks::all;
  const GByArcs<F, arc> add_g(t.tables->arcs());
  const __m512i one = _mm512_set1_epi16(1), zero = _mm512_setzero_si512();
  for (std::size_t first = 0; first < rows; first += group) {
    std::uint16_t* const sums = t.sums + first * lanes;
    __m512i x[group];
    __mmask32 negative[group];
    for (std::size_t r = 0; r < group; ++r) {
      const __m512i word = _mm512_loadu_si512(sums + r * lanes);
      x[r] = _mm512_srli_epi16(word, 1);
      negative[r] = _mm512_test_epi16_mask(word, one);
    }
    for (std::size_t k = 0; k < t.depth; ++k) {
      const std::uint16_t* const b = t.b + k * stride;
      const __m512i word = _mm512_loadu_si512(b);
      const __m512i code = checked ? _mm512_loadu_si512(b + 2 * lanes) : _mm512_srli_epi16(word, 1);
      const __mmask32 sign = _mm512_test_epi16_mask(word, one);
      for (std::size_t r = 0; r < group; ++r) {
        const LnsFactor& a = t.a[k * rows + first + r];
        __m512i y = _mm512_subs_epu16(code, _mm512_set1_epi16(static_cast<std::int16_t>(a.below)));
        if (checked) y = _mm512_min_epu16(y, _mm512_set1_epi16(Lns16::largest));
        const __mmask32 opposite = _kxor_mask32(_kxor_mask32(sign, _cvtu32_mask32(a.sign)), negative[r]);
        const __m512i hi = _mm512_max_epi16(x[r], y), lo = _mm512_min_epi16(x[r], y);
        negative[r] = _kxor_mask32(negative[r], _mm512_mask_cmpgt_epi16_mask(opposite, y, x[r]));
        const __mmask32 numbers = checked ? _mm512_test_epi16_mask(lo, lo) : ~__mmask32{0};
        x[r] = add_g(hi, _mm512_sub_epi16(hi, lo), opposite, numbers);
        if (checked) x[r] = _mm512_max_epi16(x[r], zero);
      }
    }
    for (std::size_t r = 0; r < group; ++r) {
      const __m512i code = _mm512_max_epi16(x[r], zero), word = _mm512_add_epi16(code, code);
      _mm512_storeu_si512(sums + r * lanes, _mm512_mask_add_epi16(word, negative[r], word, one));
    }
  }
}

template <LnsChecks checks, LnsArcKind arc>
void ByPermutes(const LnsTile& t) {
  const unsigned f = t.tables->fraction_bits();
  f == 6 ? ByPermutes<checks, 6, arc>(t) : f == 7 ? ByPermutes<checks, 7, arc>(t) : ByPermutes<checks, 8, arc>(t);
}

template <LnsChecks checks>
void Run(const LnsTile& t) {
  const bool exact = t.tables->kind() == LnsAddition::exact;
  exact ? ByPermutes<checks, LnsArcKind::parabola>(t) : ByPermutes<checks, LnsArcKind::line>(t);
}
#else
// The rotated words of a row of B, times an element of A. a.sign selects the form of the row that has the products'
// signs.
template <LnsChecks checks>
HWY_INLINE Words Product(const std::uint16_t* b, LnsFactor a, std::size_t lanes) {
  const Tag d;
  const auto signs = hn::LoadU(d, b + (a.sign & lanes));
  if (checks == LnsChecks::none)
    return hn::SaturatedSub(signs, hn::SaturatedAdd(Broadcast(a.below), Broadcast(a.below)));
  const auto code =
      hn::Min(hn::SaturatedSub(hn::LoadU(d, b + 2 * lanes), Broadcast(a.below)), Broadcast(Lns16::largest));
  return hn::IfThenZeroElse(hn::Eq(code, hn::Zero(d)), hn::Or(hn::Add(code, code), signs));
}

// Changes the larger word by `change`, which is 2·G, since words are rotated codes.
template <LnsChecks checks>
HWY_INLINE Words Sum(Words hi, Words lo, Words change) {
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  const auto cancelled = hn::Eq(hn::Xor(hi, lo), Broadcast(1));
  if (checks == LnsChecks::none) return hn::IfThenZeroElse(cancelled, hn::Add(hi, change));
  // Codes fill the positive half of signed words: the addition saturates, and results that are not positive are zero.
  const auto g = hn::ShiftRight<1>(hn::BitCast(di, change));
  const auto code = hn::SaturatedAdd(hn::BitCast(di, hn::ShiftRight<1>(hi)), g);
  const auto word = hn::BitCast(d, hn::Add(code, code));
  const auto positive = hn::RebindMask(d, hn::Gt(code, hn::Zero(di)));
  const auto sum = hn::IfThenElseZero(positive, hn::Or(word, hn::And(hi, Broadcast(1))));
  return hn::IfThenElse(hn::Eq(lo, hn::Zero(d)), hi, hn::IfThenZeroElse(cancelled, sum));
}

// The index in LnsTables::doubled: twice the distance of the codes, with the lowest bit set where signs differ.
HWY_INLINE Words Index(Words hi, Words lo) {
  const auto twice = hn::Sub(hn::Or(hi, Broadcast(1)), lo);  // the lowest bit has no meaning
  return hn::Or(hn::AndNot(Broadcast(1), twice), hn::And(hn::Xor(hi, lo), Broadcast(1)));
}

// Computes a tile without look-ups in registers. Indices are written to memory, replaced there by table entries, and
// read back. Two groups of rows take turns, so that vector code of one group overlaps with scalar loads of the other.
template <LnsChecks checks>
void Run(const LnsTile& t) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const std::int16_t* const table = t.tables->doubled().data();
  const auto last = Broadcast(static_cast<std::uint16_t>(2 * t.tables->entries()));
  constexpr std::size_t most = rows * hn::MaxLanes(Tag());
  HWY_ALIGN std::uint16_t larger[most], smaller[most], change[most];
  for (std::size_t k = 0; k < t.depth; ++k)
    for (std::size_t first = 0; first < rows; first += group) {
      for (std::size_t r = first; r < first + group; ++r) {
        const auto x = hn::LoadU(d, t.sums + r * lanes);
        const auto y = Product<checks>(t.b + k * detail::lns_tile_copies(checks) * lanes, t.a[k * rows + r], lanes);
        const auto hi = hn::Max(x, y), lo = hn::Min(x, y);
        hn::Store(hi, d, larger + r * lanes);
        hn::Store(lo, d, smaller + r * lanes);
        hn::Store(hn::Min(Index(hi, lo), last), d, change + r * lanes);
      }
      for (std::size_t i = first * lanes; i < (first + group) * lanes; ++i)
        change[i] = static_cast<std::uint16_t>(table[change[i]]);
      for (std::size_t r = first * lanes; r < (first + group) * lanes; r += lanes) {
        const auto sum = Sum<checks>(hn::Load(d, larger + r), hn::Load(d, smaller + r), hn::Load(d, change + r));
        hn::StoreU(sum, d, t.sums + r);
      }
    }
}
#endif

void Tile(const LnsTile& t) { t.checks == LnsChecks::none ? Run<LnsChecks::none>(t) : Run<LnsChecks::all>(t); }

}  // namespace gradmeter::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::kernels {

HWY_EXPORT(Lanes);
HWY_EXPORT(Tile);

std::size_t detail::lns_tile_lanes() { return HWY_DYNAMIC_DISPATCH(Lanes)(); }
void detail::lns_tile(const LnsTile& t) { HWY_DYNAMIC_DISPATCH(Tile)(t); }

}  // namespace gradmeter::kernels
#endif  // HWY_ONCE
