#include "kernels/lns_tile.hpp"

#include "kernels/aligned.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lns_tile.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<std::uint16_t>;
using Words = hn::Vec<Tag>;
using detail::LnsFactor;
using detail::LnsTile;
constexpr std::size_t rows = detail::lns_tile_rows, group = 4;

std::size_t Lanes() { return hn::Lanes(Tag()); }

HWY_INLINE Words Product(const std::uint16_t* b, LnsFactor a, std::size_t lanes) {
  const Tag d;
  return hn::SaturatedSub(hn::LoadU(d, b + a.sign * lanes), hn::Set(d, a.below));
}

#if HWY_TARGET <= HWY_AVX3
// vpermi2w looks 32 words up among the 64 of two registers.
struct Pair {
  __m512i low, high;
  explicit Pair(const std::int16_t* table) : low(_mm512_loadu_si512(table)), high(_mm512_loadu_si512(table + 32)) {}
  __m512i operator()(__m512i index) const { return _mm512_permutex2var_epi16(low, index, high); }
};

// The sum of two vectors from the knots. F is fixed where this is compiled: shifts are then constants.
template <unsigned F, LnsArc arc>
struct Adder {
  static constexpr unsigned shift = F - 2;
  Pair value, slope, curve, near0, near1, near2, near3;
  __m512i last_entry;
  explicit Adder(const LnsKnots& k)
      : value(k.value.data()),
        slope(k.slope.data()),
        curve(k.curve.data()),
        near0(k.near.data()),
        near1(k.near.data() + 64),
        near2(k.near.data() + 128),
        near3(k.near.data() + 192),
        last_entry(_mm512_set1_epi16(static_cast<std::int16_t>(k.entries - 1))) {}

  // G+ or G− from an arc. `d` is a distance of codes.
  HWY_INLINE __m512i FromArc(__m512i d, __mmask32 opposite) const {
    const __m512i held = _mm512_min_epu16(d, _mm512_set1_epi16((LnsKnots::arcs << shift) - 1));
    __m512i i = _mm512_srli_epi16(held, shift);
    i = _mm512_mask_add_epi16(i, opposite, i, _mm512_set1_epi16(LnsKnots::arcs));
    const __m512i place = _mm512_and_si512(_mm512_slli_epi16(held, 15 - shift), _mm512_set1_epi16(0x7fff));
    __m512i climb = slope(i);
    if (arc == LnsArc::parabola) climb = _mm512_add_epi16(climb, _mm512_mulhi_epi16(curve(i), place));
    const __m512i g = _mm512_add_epi16(value(i), _mm512_mulhi_epi16(climb, place));
    return _mm512_srai_epi16(g, LnsKnots::value_bits);
  }

  // G− of the 256 smallest distances.
  HWY_INLINE __m512i Near(__m512i d) const {
    const __mmask32 odd = _mm512_test_epi16_mask(d, _mm512_set1_epi16(64));
    const __mmask32 upper = _mm512_test_epi16_mask(d, _mm512_set1_epi16(128));
    const __m512i low = _mm512_mask_mov_epi16(near0(d), odd, near1(d));
    const __m512i high = _mm512_mask_mov_epi16(near2(d), odd, near3(d));
    return _mm512_mask_mov_epi16(low, upper, high);
  }

  HWY_INLINE __m512i operator()(__m512i larger, __m512i smaller) const {
    const __m512i one = _mm512_set1_epi16(1);
    const __mmask32 opposite = _mm512_test_epi16_mask(_mm512_xor_si512(larger, smaller), one);
    const __m512i d = _mm512_srli_epi16(_mm512_sub_epi16(_mm512_or_si512(larger, one), smaller), 1);
    const __mmask32 is_near = _mm512_mask_cmplt_epu16_mask(opposite, d, _mm512_set1_epi16(LnsKnots::near_count));
    const __m512i g = _mm512_mask_mov_epi16(FromArc(d, opposite), is_near, Near(d));
    const __mmask32 within = _mm512_cmple_epu16_mask(d, last_entry);
    const __m512i sum = _mm512_mask_add_epi16(larger, within, larger, _mm512_add_epi16(g, g));
    const __mmask32 cancelled = _mm512_mask_testn_epi16_mask(opposite, d, d);
    return _mm512_mask_mov_epi16(sum, cancelled, _mm512_setzero_si512());
  }
};

template <unsigned F, LnsArc arc>
void ByPermutes(const LnsTile& t) {
  constexpr std::size_t lanes = 32;
  const Adder<F, arc> add(t.tables->knots());
  for (std::size_t first = 0; first < rows; first += group) {
    __m512i x[group];
    for (std::size_t r = 0; r < group; ++r) x[r] = _mm512_loadu_si512(t.sums + (first + r) * lanes);
    for (std::size_t k = 0; k < t.depth; ++k)
      for (std::size_t r = 0; r < group; ++r) {
        const __m512i y = Product(t.b + 2 * k * lanes, t.a[k * rows + first + r], lanes).raw;
        x[r] = add(_mm512_max_epu16(x[r], y), _mm512_min_epu16(x[r], y));
      }
    for (std::size_t r = 0; r < group; ++r) _mm512_storeu_si512(t.sums + (first + r) * lanes, x[r]);
  }
}

template <LnsArc arc>
void ByPermutes(const LnsTile& t) {
  const unsigned f = t.tables->fraction_bits();
  f == 6 ? ByPermutes<6, arc>(t) : f == 7 ? ByPermutes<7, arc>(t) : ByPermutes<8, arc>(t);
}

void Tile(const LnsTile& t) {
  t.tables->kind() == LnsAddition::exact ? ByPermutes<LnsArc::parabola>(t) : ByPermutes<LnsArc::line>(t);
}
#else
// Twice the distance of the codes, the lowest bit set where signs differ; hi is the larger word.
HWY_INLINE Words Distance(Words hi, Words lo) {
  const auto one = hn::Set(Tag(), std::uint16_t{1});
  const auto twice = hn::Sub(hn::Or(hi, one), lo);  // and a lowest bit that means nothing
  return hn::Or(hn::AndNot(one, twice), hn::And(hn::Xor(hi, lo), one));
}

// Four rows of sums: distances are written to memory, replaced there by table entries, read back. Two groups take
// turns, so that the one's vectors and the other's scalar loads overlap.
void Tile(const LnsTile& t) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const std::int16_t* const table = t.tables->doubled().data();
  const auto last = hn::Set(d, static_cast<std::uint16_t>(2 * t.tables->entries()));
  const auto cancelled = hn::Set(d, std::uint16_t{1});
  HWY_ALIGN std::uint16_t larger[rows * hn::MaxLanes(Tag())];
  HWY_ALIGN std::uint16_t distance[rows * hn::MaxLanes(Tag())];
  HWY_ALIGN std::uint16_t change[rows * hn::MaxLanes(Tag())];
  for (std::size_t k = 0; k < t.depth; ++k)
    for (std::size_t first = 0; first < rows; first += group) {
      for (std::size_t r = first; r < first + group; ++r) {
        const auto y = Product(t.b + 2 * k * lanes, t.a[k * rows + r], lanes), x = hn::LoadU(d, t.sums + r * lanes);
        const auto hi = hn::Max(x, y);
        hn::Store(hi, d, larger + r * lanes);
        hn::Store(hn::Min(Distance(hi, hn::Min(x, y)), last), d, distance + r * lanes);
      }
      for (std::size_t i = first * lanes; i < (first + group) * lanes; ++i)
        change[i] = static_cast<std::uint16_t>(table[distance[i]]);
      for (std::size_t r = first; r < first + group; ++r) {
        const auto sum = hn::Add(hn::Load(d, larger + r * lanes), hn::Load(d, change + r * lanes));
        const auto zero = hn::Eq(hn::Load(d, distance + r * lanes), cancelled);
        hn::StoreU(hn::IfThenZeroElse(zero, sum), d, t.sums + r * lanes);
      }
    }
}

#endif

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
