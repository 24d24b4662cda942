// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/detail/largest.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/detail/largest.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Words = hn::CappedTag<std::int32_t, 16>;  // a mask of them fits in 16 bits

/// body(i) for each i in [0, n) whose magnitude's bits are in [low, high], ascending; fast where those are few.
template <class Body>
HWY_INLINE void each_between(const float* x, std::size_t n, std::uint32_t low, std::uint32_t high, Body body) {
  const Words d;
  const std::size_t lanes = hn::Lanes(d);
  const auto below = hn::Set(d, static_cast<std::int32_t>(low) - 1),
             highest = hn::Set(d, static_cast<std::int32_t>(high));
  const auto magnitude = hn::Set(d, 0x7fffffff);
  const auto* bits = reinterpret_cast<const std::int32_t*>(x);
  const auto inside = [&](std::size_t i) HWY_ATTR {
    const auto v = hn::And(hn::LoadU(d, bits + i), magnitude);
    return hn::AndNot(hn::Gt(v, highest), hn::Gt(v, below));
  };
  const auto visit = [&](std::size_t i, auto mask) HWY_ATTR {
    std::uint8_t stored[8] = {};
    hn::StoreMaskBits(d, mask, stored);
    std::uint32_t found = 0;
    for (std::memcpy(&found, stored, 4); found != 0; found &= found - 1) {
      body(i + static_cast<std::size_t>(std::countr_zero(found)));
    }
  };
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto a = inside(i), b = inside(i + lanes), c = inside(i + 2 * lanes), e = inside(i + 3 * lanes);
    if (hn::AllFalse(d, hn::Or(hn::Or(a, b), hn::Or(c, e)))) continue;
    visit(i, a);
    visit(i + lanes, b);
    visit(i + 2 * lanes, c);
    visit(i + 3 * lanes, e);
  }
  for (; i < n; ++i) {
    const std::uint32_t v = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffff;
    if (v >= low && v <= high) body(i);
  }
}

void CountBetween(const float* x, std::size_t n, std::uint32_t low, std::uint32_t high, int shift,
                  std::size_t* counts) {
  each_between(x, n, low, high, [&](std::size_t i) HWY_ATTR {
    ++counts[((std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffff) - low) >> shift];
  });
}

void Pick(const float* x, std::size_t n, const detail::Threshold& t, const detail::Picked& to) {
  std::size_t taken = 0, ties = t.ties;
  each_between(x, n, t.bits, 0x7fffffff, [&](std::size_t i) HWY_ATTR {
    if ((std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffff) == t.bits && ties-- == 0) {
      ties = 0;
      return;
    }
    const auto index = static_cast<std::uint32_t>(i);
    if (to.indices) std::memcpy(to.indices + 4 * taken, &index, 4);
    if (to.bitmap) to.bitmap[i / 8] |= static_cast<std::byte>(1u << i % 8);
    std::memcpy(to.values + 4 * taken, x + i, 4);
    ++taken;
  });
}

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression::detail {
namespace {

HWY_EXPORT(CountBetween);
HWY_EXPORT(Pick);

constexpr std::uint32_t infinity = 0x7f800000, all_ones = 0x7fffffff;
/// 31 bits of magnitude, found in three steps: the upper 11, the next 10, the last 10.
constexpr int first_shift = 20, second_shift = 10;
using Counts = std::array<std::size_t, 2048>;

/// The bin in which the k-th largest lies, and how many lie above that bin.
struct Bin {
  std::uint32_t index = 0;
  std::size_t above = 0;
  bool found = false;
};
Bin bin_of(const Counts& counts, std::size_t k) {
  std::size_t above = 0;
  for (std::size_t i = counts.size(); i-- > 0; above += counts[i]) {
    if (above + counts[i] >= k) return {static_cast<std::uint32_t>(i), above, true};
  }
  return {0, above, false};
}

void count(std::span<const float> x, std::uint32_t low, std::uint32_t high, int shift, Counts& counts) {
  counts.fill(0);
  HWY_DYNAMIC_DISPATCH(CountBetween)(x.data(), x.size(), low, high, shift, counts.data());
}

/// Upper 11 bits above which, by an evenly spread sample, there is about one and a half times what is looked for.
std::uint32_t guess(std::span<const float> x, std::size_t k) {
  constexpr std::size_t most = 4096;
  const std::size_t n = x.size(), step = n / most;
  if (step < 4) return 0;
  Counts counts{};
  for (std::size_t i = 0; i < most; ++i) {
    ++counts[(std::bit_cast<std::uint32_t>(x[i * step]) & all_ones) >> first_shift];
  }
  const double share = static_cast<double>(k) / static_cast<double>(n);
  const auto wanted = static_cast<std::size_t>(share * 1.5 * most) + 16;
  return wanted < most ? bin_of(counts, wanted).index : 0;
}

}  // namespace

Threshold find_threshold(std::span<const float> x, std::size_t k) {
  Counts counts;
  std::uint32_t from = guess(x, k) << first_shift;
  count(x, from, all_ones, first_shift, counts);
  Bin bin = bin_of(counts, k);
  if (!bin.found) {
    from = 0;
    count(x, from, all_ones, first_shift, counts);
    bin = bin_of(counts, k);
  }
  const std::uint32_t unfit = (infinity - from) >> first_shift;
  if (from > infinity || std::any_of(counts.begin() + unfit, counts.end(), [](std::size_t c) { return c > 0; })) {
    return {.finite = false};
  }
  Threshold t{.bits = from + (bin.index << first_shift), .ties = k - bin.above};
  for (const int shift : {second_shift, 0}) {
    const std::uint32_t width = 1u << (shift + 10);
    count(x, t.bits, t.bits + width - 1, shift, counts);
    bin = bin_of(counts, t.ties);
    t.bits += bin.index << shift;
    t.ties -= bin.above;
  }
  return t;
}

void pick(std::span<const float> x, const Threshold& t, const Picked& to) {
  HWY_DYNAMIC_DISPATCH(Pick)(x.data(), x.size(), t, to);
}

}  // namespace gradmeter::compression::detail
#endif
