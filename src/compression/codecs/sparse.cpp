// SPDX-License-Identifier: Apache-2.0
// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/sparse.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/sparse.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using IntTag = hn::CappedTag<std::int32_t, 16>;  // at most 16 lanes, so that a mask fits in 16 bits

/// Calls body(i), in ascending order, for each i in [0, n) for which the bits of |x[i]| are in [low, high]. Fast if
/// there are few.
template <class Body>
HWY_INLINE void each_between(const float* x, std::size_t n, std::uint32_t low, std::uint32_t high, Body body) {
  const IntTag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto below = hn::Set(d, static_cast<std::int32_t>(low) - 1),
             highest = hn::Set(d, static_cast<std::int32_t>(high));
  const auto magnitude_mask = hn::Set(d, 0x7fffffff);
  const auto* bits = reinterpret_cast<const std::int32_t*>(x);
  const auto inside = [&](std::size_t i) HWY_ATTR {
    const auto v = hn::And(hn::LoadU(d, bits + i), magnitude_mask);
    return hn::AndNot(hn::Gt(v, highest), hn::Gt(v, below));
  };
  const auto bits_of = [&](auto mask) HWY_ATTR {
    std::uint8_t stored[8] = {};
    hn::StoreMaskBits(d, mask, stored);
    std::uint64_t found = 0;
    std::memcpy(&found, stored, 2);
    return found;
  };
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto a = inside(i), b = inside(i + lanes), c = inside(i + 2 * lanes), e = inside(i + 3 * lanes);
    if (hn::AllFalse(d, hn::Or(hn::Or(a, b), hn::Or(c, e)))) continue;
    std::uint64_t found = bits_of(a) | bits_of(b) << lanes | bits_of(c) << 2 * lanes | bits_of(e) << 3 * lanes;
    for (; found != 0; found &= found - 1) body(i + static_cast<std::size_t>(std::countr_zero(found)));
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

/// Gathers the elements of x for which the bits of |x| are at least `low`, with their places, and returns their number.
/// If there are more than `room`, stores the first `room` and returns a number above `room`.
std::size_t GatherFrom(const float* x, std::size_t n, std::uint32_t low, std::size_t room, float* values,
                       std::uint32_t* places) {
  constexpr std::size_t piece = 65536;
  std::size_t found = 0;
  for (std::size_t at = 0; at < n && found <= room; at += piece) {
    each_between(x + at, std::min(piece, n - at), low, 0x7fffffff, [&](std::size_t i) HWY_ATTR {
      if (found < room) values[found] = x[at + i], places[found] = static_cast<std::uint32_t>(at + i);
      ++found;
    });
  }
  return found;
}

/// The wire's layout `w` is passed by value: the compiler must assume that stores of bytes change an object behind a
/// reference, and would read it again after each.
void WriteTaken(const detail::Candidates& from, const detail::Threshold& t, TopKLayout w, std::byte* wire) {
  std::byte* values = wire + w.places_bytes();
  const float* x = from.x.data();
  std::size_t taken = 0, ties = t.ties;
  each_between(x, from.x.size(), t.bits, 0x7fffffff, [&](std::size_t i) HWY_ATTR {
    if ((std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffff) == t.bits && ties-- == 0) {
      ties = 0;
      return;
    }
    detail::write_place(w, taken, from.places.empty() ? i : from.places[i], wire);
    std::memcpy(values + 4 * taken, x + i, 4);
    ++taken;
  });
}

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression::detail {
namespace {

HWY_EXPORT(CountBetween);
HWY_EXPORT(GatherFrom);

constexpr std::uint32_t infinity = 0x7f800000, magnitude_mask = 0x7fffffff;
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

/// The upper 11 bits of the magnitude that about 1.5·k elements reach, as an evenly spread sample tells; 0 if x is too
/// short for a sample, or k too large.
std::uint32_t guess_upper_bits(std::span<const float> x, std::size_t k) {
  constexpr std::size_t samples = 4096;
  const std::size_t n = x.size(), step = n / samples;
  if (step < 4) return 0;
  Counts counts{};
  for (std::size_t i = 0; i < samples; ++i) {
    ++counts[(std::bit_cast<std::uint32_t>(x[i * step]) & magnitude_mask) >> first_shift];
  }
  const double share = static_cast<double>(k) / static_cast<double>(n);
  const auto wanted = static_cast<std::size_t>(share * 1.5 * samples) + 16;
  return wanted < samples ? bin_of(counts, wanted).index : 0;
}

/// Gathering pays if at most one element in this many is taken; otherwise it costs more than reading the tensor again.
constexpr std::size_t gathers_up_to = 16;

__extension__ using Wide = unsigned __int128;

/// The highest power of ten that fits in 128 bits.
constexpr unsigned most_decimals = 38;

}  // namespace

Threshold find_threshold(std::span<const float> x, std::size_t k) {
  Counts counts;
  std::uint32_t from = guess_upper_bits(x, k) << first_shift;
  count(x, from, magnitude_mask, first_shift, counts);
  Bin bin = bin_of(counts, k);
  if (!bin.found) {
    from = 0;
    count(x, from, magnitude_mask, first_shift, counts);
    bin = bin_of(counts, k);
  }
  const std::uint32_t first_nonfinite_bin = (infinity - from) >> first_shift;
  if (from > infinity ||
      std::any_of(counts.begin() + first_nonfinite_bin, counts.end(), [](std::size_t c) { return c > 0; })) {
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

Candidates::Candidates(std::span<const float> values, std::size_t k) : x(values) {
  const std::uint32_t low = guess_upper_bits(values, k) << first_shift;
  const std::size_t room = 4 * k + values.size() / 64;
  if (low == 0 || k > values.size() / gathers_up_to) return;
  values_ = std::make_unique_for_overwrite<float[]>(room);
  places_ = std::make_unique_for_overwrite<std::uint32_t[]>(room);
  const std::size_t found =
      HWY_DYNAMIC_DISPATCH(GatherFrom)(values.data(), values.size(), low, room, values_.get(), places_.get());
  if (found < k || found > room) return;
  x = {values_.get(), found};
  places = {places_.get(), found};
}

double number_between(const core::ParsedName& name, std::string_view parameter, double least, double most,
                      bool closed) {
  const std::string& text = name.parameters.at(std::string(parameter));
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool inside = value >= least && (value < most || (closed && value == most));
  // Only one text of each number is allowed, since names that mean the same must be equal.
  if (error != std::errc{} || end != text.data() + text.size() || !inside || fmt::format("{}", value) != text) {
    throw core::UsageError(
        fmt::format("codec {} takes numbers from {} {} {} as {}, written as short as can be, not '{}'", name.base,
                    least, closed ? "to" : "to below", most, parameter, text));
  }
  return value;
}

Density::Density(const core::ParsedName& name) : value_(fraction(name, "density")) {
  // The shortest text that reads back as this value. It is the text that was given: `fraction` allows no other.
  const std::string text = fmt::format("{}", value_);
  const std::size_t mark = std::min(text.find('e'), text.size());
  const int exponent = mark < text.size() ? std::stoi(text.substr(mark + 1)) : 0;
  int behind_point = 0;
  bool passed_point = false;
  for (const char c : std::string_view(text).substr(0, mark)) {
    if (c != '.') digits_ = 10 * digits_ + static_cast<std::uint64_t>(c - '0');
    if (c != '.' && passed_point) ++behind_point;
    passed_point = passed_point || c == '.';
  }
  decimals_ = static_cast<unsigned>(behind_point - exponent);
}

std::size_t Density::sent_of(std::size_t n) const {
  // With a density this small, one element of any tensor that fits in memory is sent.
  if (n == 0 || decimals_ > most_decimals) return n == 0 ? 0 : 1;
  Wide ten = 1;
  for (unsigned i = 0; i < decimals_; ++i) ten *= 10;
  const Wide product = Wide{digits_} * n;
  return std::min(n, static_cast<std::size_t>(product / ten + (product % ten != 0)));
}

void require_indexable(std::string_view codec, std::size_t n) {
  constexpr std::size_t most = std::size_t{1} << 32;
  if (n <= most) return;
  throw core::UsageError(
      fmt::format("codec {} sends places as 32 bits and cannot name {} elements of one tensor: cut it into tensors of "
                  "at most {}",
                  codec, n, most));
}

}  // namespace gradmeter::compression::detail

namespace gradmeter::compression {
namespace {

HWY_EXPORT(WriteTaken);

[[noreturn]] void refuse_damage(const char* how) { throw core::BackendError("compression", "topk", how); }

constexpr float not_finite = std::numeric_limits<float>::quiet_NaN();
constexpr std::array<std::string_view, 2> switches{"off", "on"};

/// Writes the first k places, and NaN for all values.
void mark_not_finite(const TopKLayout& w, std::byte* wire) {
  for (std::size_t i = 0; i < w.k; ++i) {
    detail::write_place(w, i, i, wire);
    std::memcpy(wire + w.places_bytes() + 4 * i, &not_finite, 4);
  }
}

template <class Body>
void each_index(const TopKLayout& w, const std::byte* wire, Body body) {
  const std::byte* values = wire + w.places_bytes();
  std::size_t least = 0;
  for (std::size_t j = 0; j < w.k; ++j) {
    std::uint32_t index;
    float value;
    std::memcpy(&index, wire + 4 * j, 4);
    std::memcpy(&value, values + 4 * j, 4);
    if (index < least || index >= w.n) refuse_damage("places are not ascending inside the tensor");
    least = std::size_t{index} + 1;
    body(index, value);
  }
}

template <class Body>
void each_in_bitmap(const TopKLayout& w, const std::byte* wire, Body body) {
  const std::byte* values = wire + w.places_bytes();
  std::size_t j = 0;
  const std::size_t bytes = w.places_bytes();
  for (std::size_t at = 0; at < bytes; at += 8) {  // the bitmap is padded to 16 bytes, so it has whole words of 8
    std::uint64_t word;
    for (std::memcpy(&word, wire + at, 8); word != 0; word &= word - 1, ++j) {
      const std::size_t i = 8 * at + static_cast<std::size_t>(std::countr_zero(word));
      if (i >= w.n || j == w.k) refuse_damage("the bitmap has bits outside the tensor, or too many");
      float value;
      std::memcpy(&value, values + 4 * j, 4);
      body(i, value);
    }
  }
  if (j != w.k) refuse_damage("the bitmap has too few bits");
}

}  // namespace

TopK::TopK(const core::ParsedName& name)
    : Codec(name.canonical()), density_(name), bitmap_(density_.value() > 1.0 / 32) {}

std::size_t TopK::wire_bytes(std::size_t n) const {
  detail::require_indexable(name(), n);
  return wire(n).bytes();
}

std::size_t TopK::encode(std::span<const float> x, std::byte* to, const RandomDraw&) const {
  const std::size_t bytes = wire_bytes(x.size());
  if (x.empty()) return 0;
  const TopKLayout w = wire(x.size());
  const std::size_t places = w.places_bytes();
  std::fill(to + (w.bitmap ? 0 : 4 * w.k), to + places, std::byte{0});
  std::fill(to + places + 4 * w.k, to + bytes, std::byte{0});
  const detail::Candidates candidates(x, w.k);
  const detail::Threshold threshold = detail::find_threshold(candidates.x, w.k);
  if (threshold.finite) {
    HWY_DYNAMIC_DISPATCH(WriteTaken)(candidates, threshold, w, to);
  } else {
    mark_not_finite(w, to);
  }
  return bytes;
}

bool TopK::was_not_finite(std::span<const std::byte> from, std::size_t n) const {
  if (n == 0) return false;
  if (from.size() < wire_bytes(n)) refuse_damage("fewer bytes than the tensor has");
  float first;
  std::memcpy(&first, from.data() + wire(n).places_bytes(), 4);
  return std::isnan(first);
}

/// Calls body(place, value) in ascending order of places. If the input was not finite, fills `out` with NaN instead.
template <class Body>
void TopK::each_sent(std::span<const std::byte> from, std::span<float> out, Body body) const {
  if (out.empty()) return;
  if (was_not_finite(from, out.size())) return std::fill(out.begin(), out.end(), not_finite);
  const TopKLayout w = wire(out.size());
  w.bitmap ? each_in_bitmap(w, from.data(), body) : each_index(w, from.data(), body);
}

void TopK::decode(std::span<const std::byte> from, std::span<float> out) const {
  std::fill(out.begin(), out.end(), 0.0f);
  each_sent(from, out, [&](std::size_t i, float value) { out[i] = value; });
}

void TopK::decode_add(std::span<const std::byte> from, std::span<const float> addend, std::span<float> out) const {
  if (addend.data() != out.data()) std::copy(addend.begin(), addend.end(), out.begin());
  each_sent(from, out, [&](std::size_t i, float value) { out[i] += value; });
}

void TopK::clear_sent(std::span<const std::byte> from, std::span<float> values) const {
  if (was_not_finite(from, values.size())) return std::fill(values.begin(), values.end(), 0.0f);
  each_sent(from, values, [&](std::size_t i, float) { values[i] = 0; });
}

std::unique_ptr<Codec> make_topk(const core::ParsedName& name) { return std::make_unique<TopK>(name); }

RandomK::RandomK(const core::ParsedName& name) : density_(name), scaled_(index_among(name, "ef", switches) == 0) {}

void RandomK::draw_places(const RandomDraw& draw, std::size_t n, std::span<std::uint32_t> places) const {
  detail::require_indexable("randomk", n);
  if (places.empty()) return;
  const detail::RandomPlaces drawn(draw, n, places.size());
  for (std::uint64_t j = 0; j < places.size(); ++j) places[j] = drawn.place(j);
}

float RandomK::factor_of(std::size_t n, std::size_t k) const {
  return scaled_ ? static_cast<float>(static_cast<double>(n) / static_cast<double>(k)) : 1.0f;
}

void RandomK::gather(std::span<const float> x, std::span<const std::uint32_t> places, std::span<float> values) const {
  const float factor = factor_of(x.size(), places.size());
  for (std::size_t j = 0; j < places.size(); ++j) values[j] = factor * x[places[j]];
}

void RandomK::take_from_residual(std::span<const float> x, std::span<const std::uint32_t> places,
                                 std::span<float> residual, std::span<float> values) const {
  bool all_finite = true;
  for (std::size_t i = 0; i < x.size(); ++i) {
    residual[i] += x[i];
    all_finite &= std::isfinite(residual[i]);
  }
  if (!all_finite) {
    std::ranges::fill(values, not_finite);
    std::ranges::fill(residual, 0.0f);
    return;
  }
  gather(residual, places, values);
  clear_sent(places, residual);
}

void RandomK::scatter(std::span<const float> values, std::span<const std::uint32_t> places, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0f);
  for (std::size_t j = 0; j < places.size(); ++j) out[places[j]] = values[j];
}

void RandomK::clear_sent(std::span<const std::uint32_t> places, std::span<float> x) {
  for (const std::uint32_t place : places) x[place] = 0;
}

void check_randomk(const core::ParsedName& name) { const RandomK refuses_bad_values(name); }

}  // namespace gradmeter::compression
#endif
