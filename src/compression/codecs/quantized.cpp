// SPDX-License-Identifier: Apache-2.0
// Highway compiles this file once for every instruction set and picks at run time.
#include "compression/codecs/quantized.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "compression/detail/elias.hpp"
#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/codecs/quantized.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "compression/detail/bucketed-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {

using detail::Qsgd1Rule, detail::QsgdRule, detail::Rounding, detail::TernaryRule;

#if HWY_TARGET != HWY_SCALAR

/// Rounds levels, given in units of 2^-24, to whole levels by the draw.
HWY_INLINE Words rounded(Floats scaled, Words draw) {
  return hn::ShiftRight<24>(hn::Add(hn::BitCast(U32(), whole_part(scaled)), hn::ShiftRight<8>(draw)));
}

template <std::size_t bits, Rounding rounding, class Encoder>
HWY_INLINE Words vector_code(QsgdRule<bits, rounding>, const Encoder& c, Floats x, Words draw) {
  return with_signs_of(x, rounded(c.scaled(x, QsgdRule<bits, rounding>::top), draw));
}

/// With one level, |q| is 1 where |x|/N + u reaches 1, that is, where |x|/N reaches 1 - u. Since 1 - u is a multiple of
/// 2^-24 and at most 1, |x|/N need neither be cut to such a multiple nor be limited to 1.
template <class Encoder>
HWY_INLINE hn::Mask<F32> reaches_one(const Encoder& c, Floats x, Words draw) {
  const auto needed = hn::Sub(hn::Set(I32(), 1 << 24), hn::BitCast(I32(), hn::ShiftRight<8>(draw)));
  return hn::Ge(c.scaled(x), hn::ConvertTo(F32(), needed));
}
template <Rounding rounding, class Encoder>
HWY_INLINE Words vector_code(QsgdRule<2, rounding>, const Encoder& c, Floats x, Words draw) {
  const auto sign = hn::BroadcastSignBit(hn::BitCast(I32(), x));
  const auto one = hn::RebindMask(I32(), reaches_one(c, x, draw));
  return hn::BitCast(U32(), hn::IfThenElseZero(one, hn::Or(sign, hn::Set(I32(), 1))));
}

#if HWY_TARGET == HWY_AVX2
/// Packs the codes of four vectors by integer multiplications.
template <Rounding rounding, class Coder>
HWY_INLINE void store_next(QsgdRule<2, rounding>, Coder& coder, const float* x, std::byte* to) {
  // Returns -q, since a lane of a mask that is set is -1.
  const auto next = [&](std::size_t v) HWY_ATTR {
    const auto number = hn::LoadU(F32(), x + v * 8);
    const auto one = hn::VecFromMask(F32(), reaches_one(coder.encoder(), number, coder.next_draw()));
    return _mm256_sign_epi32(_mm256_castps_si256(one.raw), _mm256_castps_si256(number.raw));
  };
  const __m256i a = next(0), b = next(1), c = next(2), d = next(3);
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  const __m256i codes = _mm256_and_si256(_mm256_sub_epi8(_mm256_setzero_si256(), bytes), _mm256_set1_epi8(3));
  // Products move four codes into a byte: an even one in the lower half of the vector, an odd one in the upper.
  const __m256i pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x0401));
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set_epi32(0x10000100, 0x10000100, 0x10000100, 0x10000100,
                                                                  0x00100001, 0x00100001, 0x00100001, 0x00100001));
  const __m128i both = _mm_or_si128(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi32(both, both));
}
#elif HWY_TARGET <= HWY_AVX3
/// Comparisons give the low and the high bits of codes as masks; pdep interleaves them in general-purpose registers.
template <Rounding rounding, class Coder>
HWY_INLINE void store_next(QsgdRule<2, rounding>, Coder& coder, const float* x, std::byte* to) {
  const auto minus = [](__mmask16 one, Floats v) HWY_ATTR {
    return _mm512_mask_cmplt_epi32_mask(one, _mm512_castps_si512(v.raw), _mm512_setzero_si512());
  };
  for (std::size_t i = 0; i < 64; i += 32) {
    const auto a = hn::LoadU(F32(), x + i), b = hn::LoadU(F32(), x + i + 16);
    const __mmask16 a_one = reaches_one(coder.encoder(), a, coder.next_draw()).raw;
    const __mmask16 b_one = reaches_one(coder.encoder(), b, coder.next_draw()).raw;
    const std::uint64_t codes = _pdep_u64(_mm512_kunpackw(b_one, a_one), 0x5555555555555555) |
                                _pdep_u64(_mm512_kunpackw(minus(b_one, b), minus(a_one, a)), 0xaaaaaaaaaaaaaaaa);
    std::memcpy(to + i / 4, &codes, sizeof(codes));
  }
}
#endif

template <std::size_t bits, Rounding rounding>
HWY_INLINE Floats value_at(QsgdRule<bits, rounding>, const VectorCoefficients& c, const std::byte* codes,
                           std::size_t v) {
  return hn::Mul(hn::Mul(hn::ConvertTo(F32(), signed_codes<bits>(codes, v)), c.first), c.second);
}

#if HWY_TARGET == HWY_AVX2
/// Looks each number up among the four that two bits stand for: 0.90 instructions an element where the arithmetic above
/// has 2.25.
template <Rounding rounding>
HWY_INLINE Floats value_at(QsgdRule<2, rounding>, const VectorCoefficients& c, const std::byte* codes, std::size_t v) {
  const U32 d;
  alignas(16) static constexpr float by_code[4] = {0, 1, -2, -1};
  const auto values = hn::Mul(hn::Mul(hn::LoadDup128(F32(), by_code), c.first), c.second);
  std::uint32_t word = 0;  // the codes of two vectors
  std::memcpy(&word, codes + v / 2 * sizeof(word), sizeof(word));
  const auto at = hn::Add(hn::ShiftLeft<1>(hn::Iota(d, 0)), hn::Set(d, v % 2 * 16));
  return Floats{_mm256_permutevar_ps(values.raw, hn::Shr(hn::Set(d, word), at).raw)};
}
#endif

template <class Encoder>
HWY_INLINE Words vector_code(Qsgd1Rule, const Encoder& c, Floats x, Words draw) {
  const auto scaled = hn::Mul(hn::Mul(x, c.first), c.second);
  const auto chance = whole_part(hn::Add(scaled, hn::Set(F32(), 0x1p23f)));
  return hn::BitCast(U32(), hn::VecFromMask(I32(), hn::Lt(hn::BitCast(I32(), hn::ShiftRight<8>(draw)), chance)));
}
HWY_INLINE Floats vector_value(Qsgd1Rule, const VectorCoefficients& c, Words code) {
  const auto is_positive = hn::MaskFromVec(hn::BitCast(F32(), hn::BroadcastSignBit(hn::BitCast(I32(), code))));
  return hn::IfThenElse(is_positive, c.first, c.second);
}

#endif

template <Rounding rounding>
void encode_rounded(const detail::EncodeJob& job) {
  if (job.layout.bits == 8) return encode_buckets<QsgdRule<8, rounding>>(job);
  if (job.layout.bits == 4) return encode_buckets<QsgdRule<4, rounding>>(job);
  encode_buckets<QsgdRule<2, rounding>>(job);
}
void QsgdStochastic(const detail::EncodeJob& job) { encode_rounded<Rounding::stochastic>(job); }
void QsgdNearest(const detail::EncodeJob& job) { encode_rounded<Rounding::nearest>(job); }
void QsgdDecode(const detail::DecodeJob& job) {
  if (job.layout.bits == 8) return decode_buckets<QsgdRule<8, Rounding::nearest>>(job);
  if (job.layout.bits == 4) return decode_buckets<QsgdRule<4, Rounding::nearest>>(job);
  decode_buckets<QsgdRule<2, Rounding::nearest>>(job);
}
void Qsgd1Encode(const detail::EncodeJob& job) { encode_buckets<Qsgd1Rule>(job); }
void Qsgd1Decode(const detail::DecodeJob& job) { decode_buckets<Qsgd1Rule>(job); }

#if HWY_TARGET == HWY_SCALAR
float L2Norm(std::span<const float> x) { return detail::l2_norm(x); }
std::size_t EliasQuantise(std::span<const float>, float, detail::Coefficients, const detail::Draws&, std::size_t,
                          std::int8_t*, std::byte*) {
  return 0;
}
float TernaryScale(std::span<const float> x, double clip) { return detail::ternary_scale_plain(x, clip); }
void TernaryEncode(std::span<const float> x, float scale, const detail::Draws& draws, std::byte* codes) {
  std::fill(codes, codes + (x.size() + 3) / 4, std::byte{0});
  detail::ternary_encode_plain(x, scale, draws, codes);
}
std::size_t TernaryQuantise(std::span<const float>, float, std::int8_t*, const detail::Draws&) { return 0; }
template <class Sum>
std::size_t scale_sums(std::span<const Sum>, float, float*) {
  return 0;
}
#else

float L2Norm(std::span<const float> x) { return l2_norm(x.data(), x.size()); }

/// Rounds the elements of x, of which the first has index `at`, to levels with their signs, and sets the bit in `bits`
/// of each that is not 0. `cap`: the highest level in units of 2^-24. Returns how many elements it has rounded: a
/// multiple of bucket_unit, or 0 if their numbers differ in the upper 32 bits.
std::size_t EliasQuantise(std::span<const float> x, float cap, detail::Coefficients encoder, const detail::Draws& draws,
                          std::size_t at, std::int8_t* q, std::byte* bits) {
  if (draws.crosses(at, x.size())) return 0;
  const std::size_t lanes = hn::Lanes(U32()), whole = x.size() / bucket_unit * bucket_unit;
  const VectorEncoder<Scaling::general> c(encoder);
  const auto low = static_cast<std::uint32_t>(draws.number(at));
  for_each_run<QsgdRule<8, Rounding::stochastic>>(
      whole, draws.keys(at), low, [&](std::size_t first, std::size_t count, VectorDraws source) HWY_ATTR {
        const auto next = [&](const float* from) HWY_ATTR {
          const auto v = hn::LoadU(F32(), from);
          return with_signs_of(v, rounded(c.scaled(v, cap), source.next()));
        };
        for (std::size_t i = first; i < first + count; i += 4 * lanes) {
          const Words a = next(&x[i]), b = next(&x[i + lanes]), e = next(&x[i + 2 * lanes]),
                      f = next(&x[i + 3 * lanes]);
          const CodeBytes bytes = in_order(bytes_in_blocks(a, b, e, f));
          hn::StoreU(bytes, U8(), reinterpret_cast<std::uint8_t*>(q + i));
          hn::StoreMaskBits(U8(), hn::Ne(bytes, hn::Zero(U8())), bytes_at(bits + i / 8));
        }
      });
  return whole;
}

float TernaryScale(std::span<const float> x, double clip) {
  if (clip == 0) return max_norm(x.data(), x.size());
  const std::size_t lanes = hn::Lanes(I32()), line = 16, whole = x.size() / line * line;
  detail::TreeSum squares;
  auto most = hn::Zero(I32());
  const auto visit = [&](const float* at) HWY_ATTR {
    hwy::Prefetch(at + detail::sum_piece);
    for (std::size_t i = 0; i < line; i += lanes) most = hn::Max(most, magnitudes(at + i));
  };
  // Reading from two places in turn is faster than reading from one.
  constexpr std::size_t level = 7, run = detail::sum_piece << level;
  std::size_t i = 0;
  for (; i + 2 * run <= x.size(); i += 2 * run) {
    detail::TreeSum first, second;
    for (const float* at = x.data() + i; at < x.data() + i + run; at += detail::sum_piece) {
      first.add(piece_of_squares(at, detail::sum_piece, visit));
      second.add(piece_of_squares(at + run, detail::sum_piece, visit));
    }
    squares.add(first.total(), level);
    squares.add(second.total(), level);
  }
  for (; i < x.size(); i += detail::sum_piece) {
    squares.add(piece_of_squares(x.data() + i, std::min(detail::sum_piece, x.size() - i), visit));
  }
  return detail::clipped_scale(largest_of(most, x.data() + whole, x.size() - whole), squares.total(), x.size(), clip);
}

void TernaryEncode(std::span<const float> x, float scale, const detail::Draws& draws, std::byte* codes) {
  const detail::Coefficients encoder = TernaryRule::encoder(scale);
  // Pieces are short, since a piece whose elements' numbers differ in the upper 32 bits is encoded without vectors.
  constexpr std::size_t piece = 2048;
  for (std::size_t i = 0; i < x.size(); i += piece) {
    encode_bucket<TernaryRule>(encoder, scale, x.subspan(i, std::min(piece, x.size() - i)), draws, i, codes + i / 4);
  }
}

/// Writes the codes of a multiple of bucket_unit elements; returns how many codes it has written.
std::size_t TernaryQuantise(std::span<const float> x, float scale, std::int8_t* codes, const detail::Draws& draws) {
  const std::size_t step = hn::Lanes(U8()), whole = x.size() / bucket_unit * bucket_unit;
  if (draws.crosses(0, x.size())) return 0;
  const VectorEncoder<Scaling::general> encoder(TernaryRule::encoder(scale));
  const detail::DrawKeys keys = draws.keys(0);
  const auto low = static_cast<std::uint32_t>(draws.number(0));
  for_each_run<TernaryRule>(whole, keys, low, [&](std::size_t at, std::size_t count, const auto& source) HWY_ATTR {
    Coder<TernaryRule, VectorEncoder<Scaling::general>, VectorDraws> coder(encoder, source);
    for (std::size_t i = at; i < at + count; i += step) {
      hn::StoreU(coder.next_bytes(x.data() + i), U8(), reinterpret_cast<std::uint8_t*>(codes + i));
    }
  });
  return whole;
}

template <class Sum>
std::size_t scale_sums(std::span<const Sum> sums, float scale, float* out) {
  const F32 df;
  const I32 di;
  const std::size_t lanes = hn::Lanes(df);
  const auto factor = hn::Set(df, scale);
  std::size_t i = 0;
  for (; i + lanes <= sums.size(); i += lanes) {
    if constexpr (sizeof(Sum) == 1) {
      const hn::Rebind<std::int8_t, F32> narrow;
      const auto sum = hn::PromoteTo(di, hn::LoadU(narrow, sums.data() + i));
      hn::StoreU(hn::Mul(hn::ConvertTo(df, sum), factor), df, out + i);
    } else {
      hn::StoreU(hn::Mul(hn::ConvertTo(df, hn::LoadU(di, sums.data() + i)), factor), df, out + i);
    }
  }
  return i;
}
#endif

void TernaryDecode(const detail::DecodeJob& job) { decode_buckets<TernaryRule>(job); }
std::size_t DecodeInt8Sums(std::span<const std::int8_t> sums, float scale, float* out) {
  return scale_sums(sums, scale, out);
}
std::size_t DecodeInt32Sums(std::span<const std::int32_t> sums, float scale, float* out) {
  return scale_sums(sums, scale, out);
}

}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::compression {
namespace {

using detail::DecodeJob, detail::EncodeJob, detail::Qsgd1Rule, detail::QsgdRule, detail::Rounding;

HWY_EXPORT(QsgdStochastic);
HWY_EXPORT(QsgdNearest);
HWY_EXPORT(QsgdDecode);
HWY_EXPORT(Qsgd1Encode);
HWY_EXPORT(Qsgd1Decode);

void encode_stochastic(const EncodeJob& job) { HWY_DYNAMIC_DISPATCH(QsgdStochastic)(job); }
void encode_nearest(const EncodeJob& job) { HWY_DYNAMIC_DISPATCH(QsgdNearest)(job); }
void decode_qsgd(const DecodeJob& job) { HWY_DYNAMIC_DISPATCH(QsgdDecode)(job); }
void encode_qsgd1(const EncodeJob& job) { HWY_DYNAMIC_DISPATCH(Qsgd1Encode)(job); }
void decode_qsgd1(const DecodeJob& job) { HWY_DYNAMIC_DISPATCH(Qsgd1Decode)(job); }

template <std::size_t bits>
std::unique_ptr<Codec> make_qsgd(const core::ParsedName& name) {
  const detail::Norm norm = detail::norm_of(name);
  if (detail::rounding_of(name) == Rounding::nearest) {
    return detail::make_bucketed<QsgdRule<bits, Rounding::nearest>>(name, {encode_nearest, decode_qsgd}, norm);
  }
  return detail::make_bucketed<QsgdRule<bits, Rounding::stochastic>>(name, {encode_stochastic, decode_qsgd}, norm);
}

}  // namespace

std::unique_ptr<Codec> make_qsgd8(const core::ParsedName& name) { return make_qsgd<8>(name); }
std::unique_ptr<Codec> make_qsgd4(const core::ParsedName& name) { return make_qsgd<4>(name); }
std::unique_ptr<Codec> make_qsgd2(const core::ParsedName& name) { return make_qsgd<2>(name); }
std::unique_ptr<Codec> make_qsgd1(const core::ParsedName& name) {
  return detail::make_bucketed<Qsgd1Rule>(name, {encode_qsgd1, decode_qsgd1});
}

bool qsgd_may_lose_more(const core::ParsedName& name) {
  if (detail::rounding_of(name) == Rounding::nearest) return false;
  const auto bucket = static_cast<double>(detail::bucket_of(name));
  // The norm of a bucket of independent Gaussians of variance 1: its length, or nearly its largest element.
  const double norm = detail::norm_of(name) == detail::Norm::l2 ? std::sqrt(bucket) : std::sqrt(2 * std::log(bucket));
  const double levels = name.base == "qsgd2" ? 1 : name.base == "qsgd4" ? 7 : 127;
  constexpr double mean_magnitude = 0.7979;
  return norm / levels * mean_magnitude - 1 > 1;
}

namespace {

HWY_EXPORT(L2Norm);
HWY_EXPORT(EliasQuantise);

[[noreturn]] void refuse_damage(const char* how) { throw core::BackendError("compression", "qsgd-elias", how); }

/// `gaps`: the codes of gaps below 256. `levels`: a sign bit and the code of |q|, indexed by q as an unsigned byte.
struct EliasTables {
  constexpr EliasTables() {
    for (std::uint32_t gap = 1; gap < gaps.size(); ++gap) gaps[gap] = detail::gamma_code(gap);
    for (std::int32_t q = -127; q <= 127; ++q) {
      if (q == 0) continue;
      const detail::BitString level = detail::gamma_code(static_cast<std::uint32_t>(q < 0 ? -q : q));
      levels[static_cast<std::uint8_t>(q)] = {level.bits << 1 | (q < 0 ? 1U : 0U), level.count + 1};
    }
  }
  std::array<detail::BitString, 256> gaps{}, levels{};
};
constexpr EliasTables elias_tables;

class QsgdElias final : public Codec {
 public:
  QsgdElias(const core::ParsedName& name, bool is_fast)
      : Codec(name.canonical()), bucket_(detail::bucket_of(name)), levels_(whole_number(name, "levels", 1, 127)) {
    if (is_fast) reference_ = std::make_unique<QsgdElias>(name, false);
  }
  const Codec& reference() const override { return reference_ ? *reference_ : *this; }
  std::size_t grain() const override { return bucket_; }
  bool variable() const override { return true; }
  /// An encoding is longest if no q is 0, so that every gap is 1: an element then takes gamma_bits(1) = 1 bit for the
  /// gap, 1 for the sign, and gamma_bits(|q|). One more gap ends the stream.
  std::size_t wire_bytes(std::size_t n) const override {
    return n == 0 ? 0 : scale_bytes(n, bucket_) + code_bytes(n + 1, 2 + detail::gamma_bits(levels_));
  }

  std::size_t encode(std::span<const float> x, std::byte* wire, const RandomDraw& draw) const override {
    const std::size_t n = x.size();
    if (n == 0) return 0;
    const detail::Draws draws(draw);
    std::fill(wire, wire + scale_bytes(n, bucket_), std::byte{0});
    detail::BitWriter bits(wire + scale_bytes(n, bucket_));
    std::size_t next = 0;  // the place behind the last q that is not 0
    for (std::size_t at = 0, b = 0; at < n; at += bucket_, ++b) {
      const auto part = x.subspan(at, std::min(bucket_, n - at));
      const float norm = reference_ ? HWY_DYNAMIC_DISPATCH(L2Norm)(part) : detail::l2_norm(part);
      std::memcpy(wire + 4 * b, &norm, 4);
      if (!(norm > 0)) continue;
      const detail::Coefficients encoder = detail::factors_to(cap(), norm);
      next = reference_ ? encode_fast(part, encoder, draws, at, next, bits)
                        : encode_plain(part, encoder, draws, at, next, bits);
    }
    bits.gamma(n + 1 - next);
    std::byte* const end = bits.finish();
    const auto written = static_cast<std::size_t>(end - wire);
    std::fill(end, wire + padded(written), std::byte{0});
    return padded(written);
  }

  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0f);
    unpack(wire, out);
  }
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override {
    if (addend.data() != out.data()) std::copy(addend.begin(), addend.end(), out.begin());
    unpack(wire, out);
  }

 private:
  float cap() const { return static_cast<float>(levels_) * 0x1p24f; }

  /// Writes the codes of x, whose first element has index `at`. `next`: the place behind the last q that is not 0;
  /// returns the new one. Vectors compute the levels, and set a bit for each that is not 0.
  std::size_t encode_fast(std::span<const float> x, detail::Coefficients encoder, const detail::Draws& draws,
                          std::size_t at, std::size_t next, detail::BitWriter& bits) const {
    constexpr std::size_t piece = 2048;
    alignas(64) std::array<std::int8_t, piece> q;
    std::array<std::uint64_t, piece / 64> marks;
    for (std::size_t first = 0; first < x.size(); first += piece) {
      const auto part = x.subspan(first, std::min(piece, x.size() - first));
      const std::size_t from = at + first,
                        done = HWY_DYNAMIC_DISPATCH(EliasQuantise)(part, cap(), encoder, draws, from, q.data(),
                                                                   std::as_writable_bytes(std::span(marks)).data());
      for (std::size_t word = 0; word < done / 64; ++word) {
        for (std::uint64_t left = marks[word]; left != 0; left &= left - 1) {
          const std::size_t i = 64 * word + static_cast<std::size_t>(std::countr_zero(left)), gap = from + i + 1 - next;
          const detail::BitString level = elias_tables.levels[static_cast<std::uint8_t>(q[i])];
          next = from + i + 1;
          if (gap < elias_tables.gaps.size()) {
            const detail::BitString code = elias_tables.gaps[gap];
            bits.put(code.bits | level.bits << code.count, code.count + level.count);
          } else {
            bits.gamma(gap);
            bits.put(level.bits, level.count);
          }
        }
      }
      if (done < part.size()) next = encode_plain(part.subspan(done), encoder, draws, from + done, next, bits);
    }
    return next;
  }

  std::size_t encode_plain(std::span<const float> x, detail::Coefficients encoder, const detail::Draws& draws,
                           std::size_t at, std::size_t next, detail::BitWriter& bits) const {
    const bool crosses = draws.crosses(at, x.size());
    const detail::DrawKeys keys = draws.keys(at);
    const float most = cap();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto low = static_cast<std::uint32_t>(draws.number(at + i));
      const std::uint32_t draw = crosses ? draws.draw(at + i) : keys.draw(low);
      const std::uint32_t q = detail::level_of(encoder, most, x[i], draw);
      if (q == 0) continue;
      bits.gamma(at + i + 1 - next);
      bits.put(std::signbit(x[i]) ? 1 : 0, 1);
      bits.gamma(q);
      next = at + i + 1;
    }
    return next;
  }

  float scale_at(std::span<const std::byte> wire, std::size_t bucket) const {
    float scale;
    std::memcpy(&scale, wire.data() + 4 * bucket, 4);
    return scale;
  }

  /// Adds the numbers that are not 0 to `out`.
  void unpack(std::span<const std::byte> wire, std::span<float> out) const {
    const std::size_t n = out.size();
    if (n == 0) return;
    if (wire.size() < scale_bytes(n, bucket_)) refuse_damage("fewer bytes than the scales take");
    detail::BitReader bits(wire.subspan(scale_bytes(n, bucket_)));
    const float inverse = 1.0f / static_cast<float>(levels_);
    // The loop ends, since each turn moves `next` forward by at least one place.
    for (std::size_t next = 0;;) {
      const std::uint64_t gap = bits.gamma();
      if (gap == 0 || gap > n + 1 - next) refuse_damage("a gap leads outside the tensor");
      next += gap;
      if (next == n + 1) break;
      const bool negative = bits.take(1) != 0;
      const std::uint64_t q = bits.gamma();
      if (q == 0 || q > levels_) refuse_damage("a level that there is not");
      const float value = static_cast<float>(q) * inverse * scale_at(wire, (next - 1) / bucket_);
      out[next - 1] += negative ? -value : value;
    }
    if (bits.overrun()) refuse_damage("the stream ends early");
    for (std::size_t at = 0, b = 0; at < n; at += bucket_, ++b) {
      if (!std::isnan(scale_at(wire, b))) continue;
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(at), std::min(bucket_, n - at), not_finite);
    }
  }

  static constexpr float not_finite = std::numeric_limits<float>::quiet_NaN();
  std::size_t bucket_, levels_;
  std::unique_ptr<const QsgdElias> reference_;  ///< null in the reference itself
};

}  // namespace

std::unique_ptr<Codec> make_qsgd_elias(const core::ParsedName& name) { return std::make_unique<QsgdElias>(name, true); }

bool qsgd_elias_may_lose_more(const core::ParsedName& name) {
  const std::size_t levels = whole_number(name, "levels", 1, 127);
  return detail::bucket_of(name) > 4 * levels * levels;
}

namespace {

HWY_EXPORT(TernaryScale);
HWY_EXPORT(TernaryEncode);
HWY_EXPORT(TernaryDecode);
HWY_EXPORT(TernaryQuantise);
HWY_EXPORT(DecodeInt8Sums);
HWY_EXPORT(DecodeInt32Sums);

class TernGrad final : public Codec {
 public:
  TernGrad(std::string name, double clip, bool is_fast) : Codec(std::move(name)), clip_(clip) {
    if (is_fast) reference_ = std::make_unique<TernGrad>(this->name(), clip, false);
  }
  std::size_t grain() const override { return 1; }
  std::size_t wire_bytes(std::size_t n) const override { return detail::ternary_layout.total_bytes(n); }
  const Codec& reference() const override { return reference_ ? *reference_ : *this; }

  std::size_t encode(std::span<const float> x, std::byte* wire, const RandomDraw& draw) const override {
    const std::size_t bytes = wire_bytes(x.size());
    if (x.empty()) return bytes;
    const float scale = is_fast() ? ternary_scale(x, clip_) : detail::ternary_scale_plain(x, clip_);
    // The fast loop writes all bytes but the padding, which lies in the last 16 bytes. The plain loop needs codes that
    // are zero, and without a scale all codes are zero.
    const std::size_t zeros_from = is_fast() && scale > 0 ? bytes - 16 : 16;
    std::memset(wire, 0, 16);
    std::memset(wire + zeros_from, 0, bytes - zeros_from);
    std::memcpy(wire, &scale, sizeof(scale));
    if (!(scale > 0)) return bytes;
    if (is_fast()) {
      HWY_DYNAMIC_DISPATCH(TernaryEncode)(x, scale, detail::Draws(draw), wire + 16);
    } else {
      detail::ternary_encode_plain(x, scale, detail::Draws(draw), wire + 16);
    }
    return bytes;
  }
  void decode(std::span<const std::byte> wire, std::span<float> out) const override { unpack(wire, nullptr, out); }
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override {
    unpack(wire, addend.data(), out);
  }

 private:
  bool is_fast() const { return reference_ != nullptr; }
  void unpack(std::span<const std::byte> wire, const float* addend, std::span<float> out) const {
    if (out.empty()) return;
    const detail::Encoded part{wire.data(), wire.data() + detail::ternary_layout.scale_bytes(out.size())};
    const DecodeJob job{{&part, 1}, addend, out, detail::ternary_layout};
    if (!is_fast()) return detail::decode_plain<detail::TernaryRule>(job);
    HWY_DYNAMIC_DISPATCH(TernaryDecode)(job);
  }
  double clip_;
  std::unique_ptr<const TernGrad> reference_;  ///< null in the reference itself
};

}  // namespace

std::unique_ptr<Codec> make_terngrad(const core::ParsedName& name) {
  static constexpr std::array<std::string_view, 3> exchanges{"gather", "sum", "sra"};
  index_among(name, "exchange", exchanges);
  return std::make_unique<TernGrad>(name.canonical(), ternary_clip(name), true);
}

double ternary_clip(const core::ParsedName& name) {
  const std::string& text = name.parameters.at("clip");
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Only one text of each number is allowed, since names that mean the same must be equal.
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  if (!whole || !(value >= 0 && value <= 1000) || fmt::format("{}", value) != text) {
    throw core::UsageError(
        fmt::format("codec {} takes numbers from 0 (no clipping) to 1000 in their shortest form as "
                    "clip, not '{}'; 2.5 is usual",
                    name.base, text));
  }
  return value;
}

float ternary_scale(std::span<const float> x, double clip) { return HWY_DYNAMIC_DISPATCH(TernaryScale)(x, clip); }

void ternary_quantise(std::span<const float> x, float scale, std::span<std::int8_t> codes, const RandomDraw& draw) {
  if (!(scale > 0)) return std::fill(codes.begin(), codes.end(), std::int8_t{0});
  const detail::Draws draws(draw);
  const detail::Coefficients encoder = detail::TernaryRule::encoder(scale);
  for (std::size_t i = HWY_DYNAMIC_DISPATCH(TernaryQuantise)(x, scale, codes.data(), draws); i < x.size(); ++i) {
    codes[i] = detail::ternary_code(encoder, x[i], draws.draw(i));
  }
}

void ternary_decode(std::span<const std::int8_t> sums, float scale, std::span<float> out) {
  const std::size_t done = HWY_DYNAMIC_DISPATCH(DecodeInt8Sums)(sums, scale, out.data());
  for (std::size_t i = done; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i]) * scale;
}
void ternary_decode(std::span<const std::int32_t> sums, float scale, std::span<float> out) {
  const std::size_t done = HWY_DYNAMIC_DISPATCH(DecodeInt32Sums)(sums, scale, out.data());
  for (std::size_t i = done; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i]) * scale;
}

}  // namespace gradmeter::compression
#endif
