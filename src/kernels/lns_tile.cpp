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

// Twice the distance of the codes, the lowest bit set where signs differ; hi is the larger word.
HWY_INLINE Words Distance(Words hi, Words lo) {
  const auto one = hn::Set(Tag(), std::uint16_t{1});
  const auto twice = hn::Sub(hn::Or(hi, one), lo);  // and a lowest bit that means nothing
  return hn::Or(hn::AndNot(one, twice), hn::And(hn::Xor(hi, lo), one));
}

// Four rows of sums: distances are written to memory, replaced there by table entries, read back. Two groups take
// turns, so that the one's vectors and the other's scalar loads overlap.
void ByMemory(const LnsTile& t) {
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

#if HWY_TARGET <= HWY_AVX3
// vpermi2w looks 32 words up among the 64 of two registers.
struct Pair {
  __m512i low, high;
  explicit Pair(const std::int16_t* table) : low(_mm512_loadu_si512(table)), high(_mm512_loadu_si512(table + 32)) {}
  __m512i operator()(__m512i index) const { return _mm512_permutex2var_epi16(low, index, high); }
};

// G of one vector, doubled as words are, from the knots. F is fixed where this is compiled: shifts are then constants.
template <unsigned F>
struct Interpolation {
  static constexpr unsigned shift = F - 2;
  Pair value_plus, value_minus, slope_plus, slope_minus, near0, near1, near2, near3;
  explicit Interpolation(const LnsKnots& k)
      : value_plus(k.value[0].data()),
        value_minus(k.value[1].data()),
        slope_plus(k.slope[0].data()),
        slope_minus(k.slope[1].data()),
        near0(k.near.data()),
        near1(k.near.data() + 64),
        near2(k.near.data() + 128),
        near3(k.near.data() + 192) {}

  HWY_INLINE __m512i operator()(__m512i larger, __m512i smaller) const {
    const __m512i one = _mm512_set1_epi16(1);
    const __mmask32 opposite = _mm512_test_epi16_mask(_mm512_xor_si512(larger, smaller), one);
    const __m512i d = _mm512_srli_epi16(_mm512_sub_epi16(_mm512_or_si512(larger, one), smaller), 1);
    const __m512i held = _mm512_min_epu16(d, _mm512_set1_epi16((64 << shift) - 1));
    const __m512i s = _mm512_srli_epi16(held, shift);
    const __m512i rest = _mm512_and_si512(_mm512_slli_epi16(held, 15 - shift), _mm512_set1_epi16(0x7fff));
    const __m512i value = _mm512_mask_mov_epi16(value_plus(s), opposite, value_minus(s));
    const __m512i slope = _mm512_mask_mov_epi16(slope_plus(s), opposite, slope_minus(s));
    __m512i g = _mm512_srai_epi16(_mm512_add_epi16(value, _mm512_mulhi_epi16(slope, rest)), lns_knot_bits);
    const __mmask32 is_near = _mm512_mask_cmplt_epu16_mask(opposite, d, _mm512_set1_epi16(256));
    const __mmask32 odd = _mm512_test_epi16_mask(d, _mm512_set1_epi16(64));
    const __mmask32 upper = _mm512_test_epi16_mask(d, _mm512_set1_epi16(128));
    const __m512i near_low = _mm512_mask_mov_epi16(near0(d), odd, near1(d));
    const __m512i near_high = _mm512_mask_mov_epi16(near2(d), odd, near3(d));
    g = _mm512_mask_mov_epi16(g, is_near, _mm512_mask_mov_epi16(near_low, upper, near_high));
    const __mmask32 cancelled = _mm512_mask_testn_epi16_mask(opposite, d, d);
    return _mm512_mask_mov_epi16(_mm512_add_epi16(larger, _mm512_add_epi16(g, g)), cancelled, _mm512_setzero_si512());
  }
};

template <unsigned F>
void ByPermutes(const LnsTile& t) {
  constexpr std::size_t lanes = 32;
  const Interpolation<F> look_up(t.tables->knots());
  for (std::size_t first = 0; first < rows; first += group) {
    __m512i x[group];
    for (std::size_t r = 0; r < group; ++r) x[r] = _mm512_loadu_si512(t.sums + (first + r) * lanes);
    for (std::size_t k = 0; k < t.depth; ++k)
      for (std::size_t r = 0; r < group; ++r) {
        const __m512i y = Product(t.b + 2 * k * lanes, t.a[k * rows + first + r], lanes).raw;
        x[r] = look_up(_mm512_max_epu16(x[r], y), _mm512_min_epu16(x[r], y));
      }
    for (std::size_t r = 0; r < group; ++r) _mm512_storeu_si512(t.sums + (first + r) * lanes, x[r]);
  }
}
#endif

void Tile(const LnsTile& t) {
#if HWY_TARGET <= HWY_AVX3
  if (t.tables->kind() == LnsAddition::interpolated) {
    const unsigned f = t.tables->fraction_bits();
    return f == 6 ? ByPermutes<6>(t) : f == 7 ? ByPermutes<7>(t) : ByPermutes<8>(t);
  }
#endif
  ByMemory(t);
}

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
