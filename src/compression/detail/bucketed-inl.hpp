// SPDX-License-Identifier: Apache-2.0
// The loops over buckets with vector instructions: they draw random numbers, move codes of 1, 2, 4 or 8 bits between
// 32-bit lanes and the wire, and store decoded numbers. The file is included once for each instruction set, hence its
// unusual include guard. A codec overloads these functions for its rule (bucketed.hpp):
//   template <class Encoder> Words vector_code(Rule, const Encoder&, Floats x, Words draw)
//     returns the code of each x in the low bits of its lane. `Encoder` is a VectorEncoder; a draw is in the upper 24
//     bits of its lane, below which there may be anything. The bits above the code are ignored, but the lane, read
//     as a signed number, must be in [-128, 127].
//   template <class Encoder> CodeBytes finish_codes(Rule, const Encoder&, CodeBytes codes, CodeBytes signs)
//     finishes codes where that is cheaper on bytes than on lanes; `signs` has 0x80 where x is negative, else 0. May be
//     left out.
//   Floats vector_value(Rule, const VectorCoefficients&, Words code)
//     returns the number that each code stands for. A code is in the top bits of its lane; other bits may be anything.
//   Floats value_at(Rule, const VectorCoefficients&, const std::byte* codes, std::size_t v)
//     may be defined instead of vector_value. It returns the numbers of the v-th vector of codes. The coefficients are
//     a VectorDecoder.
//   bool is_direct(Rule, std::span<const BucketPart>, std::size_t count)
//     is true for a bucket that value_at may decode in a shorter way, for which it gets Scaling::direct. May be left
//     out.
// For one instruction set a rule may also have a quicker next_in_blocks, which makes the codes of four vectors, or
// store_next, which stores them too.
// Without vectors (HWY_SCALAR) the plain loops run, and the functions need not be defined.
#if defined(GRADMETER_BUCKETED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADMETER_BUCKETED_INL
#undef GRADMETER_BUCKETED_INL
#else
#define GRADMETER_BUCKETED_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "compression/detail/bucketed.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
template <class Rule>
void encode_buckets(const detail::EncodeJob& job) {
  detail::encode_plain<Rule>(job);
}
template <class Rule>
void decode_buckets(const detail::DecodeJob& job) {
  detail::decode_plain<Rule>(job);
}
#else
namespace hn = hwy::HWY_NAMESPACE;
using detail::bucket_unit;
#undef GRADMETER_SSE
#undef GRADMETER_AVX512
#define GRADMETER_SSE (HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3)
#define GRADMETER_AVX512 (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)

using F32 = hn::CappedTag<float, 16>;  // at most 16 lanes, so that four vectors have at most bucket_unit elements
using U32 = hn::Repartition<std::uint32_t, F32>;
using I32 = hn::Repartition<std::int32_t, F32>;
using U16 = hn::Repartition<std::uint16_t, F32>;
using U8 = hn::Repartition<std::uint8_t, F32>;
// Vectors of numbers, of 32-bit words, and of bytes that hold one code each.
using Floats = hn::Vec<F32>;
using Words = hn::Vec<U32>;
using CodeBytes = hn::Vec<U8>;

HWY_INLINE std::uint8_t* bytes_at(std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); }
HWY_INLINE const std::uint8_t* bytes_at(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }

/// The distance by which sequential reads are prefetched [elements].
inline constexpr std::size_t prefetch_distance = 1024;

/// Prefetches the cache lines of codes that a part needs next, since the hardware's own prefetch stops at pages. Used
/// for sums of several parts only: a single part is decoded at the speed of memory without it.
template <std::size_t bytes>
HWY_INLINE void prefetch_codes(const std::byte* from) {
  constexpr std::size_t ahead = 2048, line = 64;
  for (std::size_t at = 0; at < bytes; at += line) hwy::Prefetch(from + ahead + at);
}

/// The way to store decoded numbers: through the caches, or by non-temporal stores, which need whole aligned vectors.
enum class Store { cached, streaming };

template <Store store>
HWY_INLINE void store_floats(Floats v, float* to) {
  if constexpr (store == Store::streaming) {
    hn::Stream(v, F32(), to);
  } else {
    hn::StoreU(v, F32(), to);
  }
}

/// Outputs of this size or more would not stay in the caches [bytes]. Non-temporal stores then save the reading of the
/// lines that they overwrite.
inline constexpr std::size_t streaming_threshold = std::size_t{32} << 20;

HWY_INLINE Store store_for(const detail::DecodeJob& job) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(job.out.data()) % 64 == 0;
  return aligned && job.out.size_bytes() >= streaming_threshold && job.addend != job.out.data() ? Store::streaming
                                                                                                : Store::cached;
}

/// The second round of DrawKeys::draw; each lane's draw is in its upper 24 bits.
HWY_INLINE Words second_round(Words x, Words second) {
  using detail::DrawKeys;
  x = hn::Xor3(x, second, hn::ShiftRight<DrawKeys::second_shift>(x));
  return hn::Mul(x, hn::Set(U32(), DrawKeys::second_multiplier));
}
/// The first round of DrawKeys::draw, of numbers to which keys.first has been added.
HWY_INLINE Words first_round(Words numbers) {
  using detail::DrawKeys;
  const Words x = hn::Xor(numbers, hn::ShiftRight<DrawKeys::first_shift>(numbers));
  return hn::Mul(x, hn::Set(U32(), DrawKeys::first_multiplier));
}

/// The low bytes of four vectors: each block of 16 bytes has four of a, then four of b, of c and of d. Lanes must be in
/// [-128, 127]; SSE and AVX saturate lanes beyond this range.
HWY_INLINE CodeBytes bytes_in_blocks(Words a, Words b, Words c, Words d) {
  const hn::Repartition<std::int16_t, F32> d16;
  const auto ab = hn::ReorderDemote2To(d16, hn::BitCast(I32(), a), hn::BitCast(I32(), b));
  const auto cd = hn::ReorderDemote2To(d16, hn::BitCast(I32(), c), hn::BitCast(I32(), d));
#if HWY_TARGET == HWY_AVX2
  return CodeBytes{_mm256_packs_epi16(ab.raw, cd.raw)};
#elif GRADMETER_AVX512
  return CodeBytes{_mm512_packs_epi16(ab.raw, cd.raw)};
#elif GRADMETER_SSE
  return CodeBytes{_mm_packs_epi16(ab.raw, cd.raw)};
#else
  const auto both = hn::Or(hn::And(ab, hn::Set(d16, 0xff)), hn::ShiftLeft<8>(cd));
  alignas(16) static constexpr std::uint8_t in_block[16] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};
  return hn::TableLookupBytes(hn::BitCast(U8(), both), hn::LoadDup128(U8(), in_block));
#endif
}

/// The signs of four vectors, in the top bits of bytes in the order of bytes_in_blocks; the other bits are 0.
HWY_INLINE CodeBytes signs_in_blocks(Floats a, Floats b, Floats c, Floats d) {
  const auto with_sign = [](Floats v) HWY_ATTR {
    const auto bits = hn::BitCast(I32(), v);
    constexpr bool saturates = GRADMETER_SSE || HWY_TARGET == HWY_AVX2 || GRADMETER_AVX512;
    return hn::BitCast(U32(), saturates ? bits : hn::BroadcastSignBit(bits));
  };
  return hn::And(bytes_in_blocks(with_sign(a), with_sign(b), with_sign(c), with_sign(d)), hn::Set(U8(), 0x80));
}

/// Reorders the bytes of bytes_in_blocks: all of a, then all of b, c and d.
HWY_INLINE CodeBytes in_order(CodeBytes blocks) {
  const std::size_t count = hn::Lanes(U32()) / 4;
  if (count == 1) return blocks;
  alignas(64) std::uint32_t order[16];
  for (std::size_t i = 0; i < 4 * count; ++i) order[i] = static_cast<std::uint32_t>(i % count * 4 + i / count);
  return hn::BitCast(U8(), hn::TableLookupLanes(hn::BitCast(U32(), blocks), hn::SetTableIndices(U32(), order)));
}

/// Packs the low `bits` of each byte, and stores them.
template <std::size_t bits>
HWY_INLINE void store_codes(CodeBytes v, std::byte* to) {
  static_assert(bits == 1 || bits == 2 || bits == 4 || bits == 8);
  if constexpr (bits == 8) {
    hn::StoreU(v, U8(), bytes_at(to));
  } else if constexpr (bits == 4) {
    const auto codes = hn::And(v, hn::Set(U8(), 0x0f));
    const hn::Rebind<std::uint8_t, U16> d;
#if HWY_TARGET == HWY_AVX2
    // The first of two codes, and 16 times the second.
    const auto pairs = hn::Vec<U16>{_mm256_maddubs_epi16(codes.raw, _mm256_set1_epi16(0x1001))};
#elif GRADMETER_AVX512
    const auto pairs = hn::Vec<U16>{_mm512_maddubs_epi16(codes.raw, _mm512_set1_epi16(0x1001))};
#else
    const auto pairs = hn::Or(hn::BitCast(U16(), codes), hn::ShiftRight<4>(hn::BitCast(U16(), codes)));
#endif
    hn::StoreU(hn::TruncateTo(d, pairs), d, bytes_at(to));
  } else if constexpr (bits == 2) {
    const auto pairs = hn::BitCast(U16(), hn::And(v, hn::Set(U8(), 0x03)));
    const auto fours = hn::BitCast(U32(), hn::Or(pairs, hn::ShiftRight<6>(pairs)));
    const hn::Rebind<std::uint8_t, U32> d;
    hn::StoreU(hn::TruncateTo(d, hn::Or(fours, hn::ShiftRight<12>(fours))), d, bytes_at(to));
  } else {
    hn::StoreMaskBits(U8(), hn::TestBit(v, hn::Set(U8(), 1)), bytes_at(to));
  }
}

/// Vector number `v` of the codes at `from`, each at the top of its lane.
template <std::size_t bits>
HWY_INLINE Words codes_at_top(const std::byte* from, std::size_t v) {
  const U32 d;
  const std::size_t lanes = hn::Lanes(d), at = v * lanes * bits;  // [bits]
  if constexpr (bits == 8) {
    const hn::Rebind<std::uint8_t, U32> narrow;
    return hn::ShiftLeft<24>(hn::PromoteTo(d, hn::LoadU(narrow, bytes_at(from) + v * lanes)));
  } else {
    // Each lane takes the word that holds its code; the code's place in that word follows from the lane's number.
    constexpr std::uint32_t per_word = 32 / bits;
    constexpr int log2_bits = bits == 4 ? 2 : bits == 2 ? 1 : 0;
    const auto place = hn::And(hn::Iota(d, 0), hn::Set(d, per_word - 1));
    const auto shift = hn::Sub(hn::Set(d, 32 - bits), hn::ShiftLeft<log2_bits>(place));
    std::uint64_t word = 0;
    if (lanes * bits == 64) {
      std::memcpy(&word, from + at / 8, 8);
      const auto words = hn::BitCast(d, hn::Set(hn::Repartition<std::uint64_t, U32>(), word));
      const auto which = hn::IndicesFromVec(d, hn::ShiftRight < bits == 4 ? 3 : 4 > (hn::Iota(d, 0)));
      return hn::Shl(hn::TableLookupLanes(words, which), shift);
    }
    if (lanes * bits == 32) std::memcpy(&word, from + at / 8, 4);
    if (lanes * bits == 16) std::memcpy(&word, from + at / 8, 2);
    if (lanes * bits <= 8) word = std::to_integer<std::uint64_t>(from[at / 8]) >> at % 8;
    return hn::Shl(hn::Set(d, static_cast<std::uint32_t>(word)), shift);
  }
}

/// The same codes as numbers in two's complement.
template <std::size_t bits>
HWY_INLINE hn::Vec<I32> signed_codes(const std::byte* from, std::size_t v) {
  const I32 d;
  if constexpr (bits == 8) {
    const hn::Rebind<std::int8_t, I32> narrow;
    return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const std::int8_t*>(from) + v * hn::Lanes(d)));
  } else {
    return hn::ShiftRight<32 - bits>(hn::BitCast(d, codes_at_top<bits>(from, v)));
  }
}

/// A rule's Coefficients, each in every lane.
struct VectorCoefficients {
  explicit VectorCoefficients(detail::Coefficients c)
      : first(hn::Set(F32(), c.first)), second(hn::Set(F32(), c.second)) {}
  Floats first, second;
};

/// The ways in which the magnitudes of a bucket are scaled to at most the `top` of its rule, and back.
enum class Scaling {
  general,  ///< by both factors; a product that rounding takes beyond the top becomes the top
  direct    ///< by the second factor: the first is 1, and the bucket's largest magnitude stays within the top
};

/// A rule's coefficients for decoding. `scaling` is direct if is_direct (below) is true for the bucket.
template <Scaling scaling>
struct VectorDecoder : VectorCoefficients {
  using VectorCoefficients::VectorCoefficients;
};

template <Scaling scaling>
struct VectorEncoder : VectorCoefficients {
  explicit VectorEncoder(detail::Coefficients c) : VectorCoefficients(c) {}
  /// |x| times the factors that `scaling` takes, at most `top`.
  HWY_INLINE Floats scaled(Floats x, float top) const {
    return scaling == Scaling::direct ? scaled(x) : hn::Min(scaled(x), hn::Set(F32(), top));
  }
  /// The same without a top.
  HWY_INLINE Floats scaled(Floats x) const {
    const auto magnitude = hn::Abs(x);
    return hn::Mul(scaling == Scaling::direct ? magnitude : hn::Mul(magnitude, first), second);
  }
};

/// True for a rule with one level. Its code is a comparison, so scaled magnitudes need not be limited to the top.
template <class Rule>
inline constexpr bool has_one_level = requires {
  requires Rule::levels == 1;
};

/// The scaling that serves a bucket in which no magnitude is above `largest`.
template <class Rule>
HWY_INLINE Scaling scaling_for(detail::Coefficients c, float largest) {
  if constexpr (requires { Rule::top; }) {
    if (c.first == 1.0f && (has_one_level<Rule> || largest * c.second <= Rule::top)) return Scaling::direct;
  }
  return Scaling::general;
}

/// Whole parts of numbers that an int32 can hold. Highway's conversion needs four more instructions, since it also
/// converts larger numbers.
HWY_INLINE hn::Vec<I32> whole_part(Floats v) {
#if HWY_TARGET == HWY_AVX2
  return hn::Vec<I32>{_mm256_cvttps_epi32(v.raw)};
#elif GRADMETER_AVX512
  return hn::Vec<I32>{_mm512_cvttps_epi32(v.raw)};
#elif GRADMETER_SSE
  return hn::Vec<I32>{_mm_cvttps_epi32(v.raw)};
#else
  return hn::ConvertTo(I32(), v);
#endif
}

/// Gives each whole number in q, none of which is negative, the sign of the x in its lane.
HWY_INLINE Words with_signs_of(Floats x, Words q) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (hn::MaxLanes(F32()) == 8) return Words{_mm256_sign_epi32(q.raw, _mm256_castps_si256(x.raw))};
#endif
  const auto sign = hn::BitCast(U32(), hn::BroadcastSignBit(hn::BitCast(I32(), x)));
  return hn::Sub(hn::Xor(q, sign), sign);
}

/// Magnitudes as integers, among which NaN and infinity are larger than any number.
HWY_INLINE hn::Vec<I32> magnitudes(const float* x) {
  return hn::And(hn::BitCast(I32(), hn::LoadU(F32(), x)), hn::Set(I32(), 0x7fffffff));
}
/// The largest magnitude in the lanes of `most` and in x [n], where n is small; NaN when it is not finite.
HWY_INLINE float largest_of(hn::Vec<I32> most, const float* x, std::size_t n) {
  std::int32_t bits = hn::GetLane(hn::MaxOfLanes(I32(), most));
  for (std::size_t i = 0; i < n; ++i) bits = std::max(bits, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
  return bits < 0x7f800000 ? std::bit_cast<float>(bits) : std::numeric_limits<float>::quiet_NaN();
}

/// This is detail::max_norm.
HWY_INLINE float max_norm(const float* x, std::size_t n) {
  const std::size_t lanes = hn::Lanes(I32());
  auto a = hn::Zero(I32()), b = a, c = a, d = a;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Max(a, magnitudes(x + i));
    b = hn::Max(b, magnitudes(x + i + lanes));
    c = hn::Max(c, magnitudes(x + i + 2 * lanes));
    d = hn::Max(d, magnitudes(x + i + 3 * lanes));
  }
  return largest_of(hn::Max(hn::Max(a, b), hn::Max(c, d)), x + i, n - i);
}

/// This is detail::add_squares; each of the sixteen partial sums has a lane of its own. The square of a float is exact
/// as a double, so that a fused addition rounds like a separate one. Four vectors of four lanes hold all sums, so that
/// four chains of dependent additions run at once. `visit` is called with the address of every sixteenth float.
template <class Visit>
HWY_INLINE void add_squares(const float* x, std::size_t n, std::array<double, detail::sum_lanes>& partial,
                            const Visit& visit) {
  const hn::CappedTag<double, 4> d;
  const hn::Rebind<float, decltype(d)> df;
  const std::size_t lanes = hn::Lanes(d), whole = n / 16 * 16;
  for (std::size_t k = 0; k < 16; k += 4 * lanes) {
    const auto sums = [&](std::size_t v) HWY_ATTR { return hn::LoadU(d, partial.data() + k + v * lanes); };
    auto a = sums(0), b = sums(1), c = sums(2), e = sums(3);
    for (std::size_t i = 0; i < whole; i += 16) {
      const auto at = [&](std::size_t v) HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(df, x + i + k + v * lanes)); };
      if (k == 0) visit(x + i);
      a = hn::MulAdd(at(0), at(0), a);
      b = hn::MulAdd(at(1), at(1), b);
      c = hn::MulAdd(at(2), at(2), c);
      e = hn::MulAdd(at(3), at(3), e);
    }
    const auto keep = [&](hn::Vec<decltype(d)> sum, std::size_t v)
                          HWY_ATTR { hn::StoreU(sum, d, partial.data() + k + v * lanes); };
    keep(a, 0), keep(b, 1), keep(c, 2), keep(e, 3);
  }
  detail::add_squares({x + whole, n - whole}, partial);
}

template <class Visit>
HWY_INLINE double piece_of_squares(const float* x, std::size_t n, const Visit& visit) {
  alignas(64) std::array<double, detail::sum_lanes> partial{};
  add_squares(x, n, partial, visit);
  return detail::pairwise_sum(partial);
}

HWY_INLINE float l2_norm(const float* x, std::size_t n) {
  return detail::l2_of(detail::sum_by_pieces(n, [x](std::size_t first, std::size_t count) HWY_ATTR {
    return piece_of_squares(x + first, count, [](const float*) {});
  }));
}

/// Finishes the codes of a rule in bytes, where one instruction serves four times as many as in vector_code. Most rules
/// have nothing left to do.
template <class Rule, class Encoder>
HWY_INLINE CodeBytes finish_codes(Rule, const Encoder&, CodeBytes codes, CodeBytes) {
  return codes;
}

/// The codes of as many elements as there are bytes in a vector, in the order of bytes_in_blocks, before finish_codes.
/// A rule may overload it with a quicker way.
template <class Rule, class Coder>
HWY_INLINE CodeBytes next_in_blocks(Rule, Coder& coder, const float* x) {
  const auto next = [&](std::size_t v) HWY_ATTR {
    return vector_code(Rule(), coder.encoder(), hn::LoadU(F32(), x + v * hn::Lanes(F32())), coder.next_draw());
  };
  const Words a = next(0), b = next(1), c = next(2), d = next(3);
  return bytes_in_blocks(a, b, c, d);
}

/// For rules without draws: each draw is one half.
struct NoDraws {
  HWY_INLINE Words next() { return hn::Set(U32(), detail::half_draw << 8); }
};

/// The draws of consecutive elements, a vector at a time, after a first round that FirstRounds has made.
class VectorDraws {
 public:
  HWY_INLINE VectorDraws(const std::uint32_t* at, std::uint32_t rest, std::uint32_t second)
      : at_(at), rest_(hn::Set(U32(), rest)), second_(hn::Set(U32(), second)) {}
  HWY_INLINE Words next() {
    const Words draw = second_round(hn::Add(rest_, hn::LoadU(U32(), at_)), second_);
    at_ += hn::Lanes(U32());
    return draw;
  }

 private:
  const std::uint32_t* at_;
  Words rest_, second_;
};

/// Looks up the first round of draws in a table, in one instruction in place of four. The round xors a number with its
/// upper half and multiplies the result. The table holds the products of the low ten bits; it serves all 65,536 numbers
/// with one upper half. The product of the other bits is the same for all numbers of a block of 1024, and is added.
/// A draw is the same with and without the table, so all codecs of a thread share one table.
class FirstRounds {
 public:
  static FirstRounds& of_thread() {
    static thread_local FirstRounds rounds;
    return rounds;
  }

  /// The first rounds of `count` consecutive numbers: at[i] + rest.
  struct Run {
    const std::uint32_t* at;  ///< [count]
    std::uint32_t rest;
    std::size_t count;
  };
  /// The first rounds of at most `most` numbers from `number` on, to which keys.first has been added. `most` and the
  /// result's count are multiples of bucket_unit.
  HWY_INLINE Run run(std::uint32_t number, std::size_t most) {
    const std::uint32_t upper = number >> detail::DrawKeys::first_shift;
    const std::size_t in_block = (block - number % block) / bucket_unit * bucket_unit;
    if (in_block == 0 || !serves(upper)) return one_unit(number);
    const std::uint32_t rest = ((number ^ upper) / block * block) * detail::DrawKeys::first_multiplier;
    return {table_.data() + number % block, rest, std::min(most, in_block)};
  }

 private:
  static constexpr std::uint32_t block = 1024, none = ~0U;

  /// True if the table serves numbers with this upper half. It is filled for them at the 16th request in a row, since
  /// hashing 16 units takes about as long as filling the table; short tensors never reach that.
  HWY_INLINE bool serves(std::uint32_t upper) {
    if (upper == upper_) return true;
    if (upper != requested_) requested_ = upper, requests_ = 0;
    constexpr int requests_to_fill = 16;
    if (++requests_ < requests_to_fill) return false;
    fill(upper);
    return true;
  }
  void fill(std::uint32_t upper) {
    const U32 d;
    upper_ = upper;
    for (std::uint32_t i = 0; i < block; i += static_cast<std::uint32_t>(hn::Lanes(d))) {
      const Words low = hn::Xor(hn::Add(hn::Iota(d, 0), hn::Set(d, i)), hn::Set(d, upper % block));
      hn::Store(hn::Mul(low, hn::Set(d, detail::DrawKeys::first_multiplier)), d, table_.data() + i);
    }
  }
  HWY_INLINE Run one_unit(std::uint32_t number) {
    const U32 d;
    for (std::size_t i = 0; i < bucket_unit; i += hn::Lanes(d)) {
      const Words numbers = hn::Add(hn::Iota(d, 0), hn::Set(d, number + static_cast<std::uint32_t>(i)));
      hn::Store(first_round(numbers), d, unit_.data() + i);
    }
    return {unit_.data(), 0, bucket_unit};
  }

  alignas(64) std::array<std::uint32_t, block> table_{};
  alignas(64) std::array<std::uint32_t, bucket_unit> unit_{};
  std::uint32_t upper_ = none, requested_ = none;
  int requests_ = 0;
};

/// Calls encode(at, count, draws) for runs of [0, n) one after another; n is a multiple of bucket_unit. `low`: the low
/// 32 bits of the number of element 0.
template <class Rule, class Encode>
HWY_INLINE void for_each_run(std::size_t n, detail::DrawKeys keys, std::uint32_t low, const Encode& encode) {
  if constexpr (Rule::random) {
    FirstRounds& rounds = FirstRounds::of_thread();
    for (std::size_t i = 0; i < n;) {
      const auto run = rounds.run(low + static_cast<std::uint32_t>(i) + keys.first, n - i);
      encode(i, run.count, VectorDraws(run.at, run.rest, keys.second));
      i += run.count;
    }
  } else {
    encode(std::size_t{0}, n, NoDraws());
  }
}

/// Makes the codes of consecutive elements, a vector of bytes at a time.
template <class Rule, class Encoder, class DrawSource>
class Coder {
 public:
  HWY_INLINE Coder(const Encoder& encoder, const DrawSource& draws) : encoder_(encoder), draws_(draws) {}
  const Encoder& encoder() const { return encoder_; }
  /// The draws of as many elements as there are lanes.
  HWY_INLINE Words next_draw() { return draws_.next(); }
  /// The codes of as many elements as there are bytes in a vector.
  HWY_INLINE CodeBytes next_bytes(const float* x) {
    const auto number = [&](std::size_t v) HWY_ATTR { return hn::LoadU(F32(), x + v * hn::Lanes(F32())); };
    const CodeBytes codes = next_in_blocks(Rule(), *this, x);
    return in_order(finish_codes(Rule(), encoder_, codes, signs_in_blocks(number(0), number(1), number(2), number(3))));
  }

 private:
  const Encoder& encoder_;
  DrawSource draws_;
};

/// Writes the codes of as many elements as there are bytes in a vector. A rule may overload it with a quicker way.
template <class Rule, class Coder>
HWY_INLINE void store_next(Rule, Coder& coder, const float* x, std::byte* to) {
  store_codes<Rule::bits>(coder.next_bytes(x), to);
}

/// Writes the codes of n elements; n is a multiple of bucket_unit. Also prefetches later elements, beyond the bucket's
/// end too: the loop over the next bucket's norm, which reads them first, is too short to hide much of the latency.
template <class Rule, class Encoder, class DrawSource>
HWY_INLINE void encode_units(const Encoder& encoder, const float* x, std::size_t n, const DrawSource& draws,
                             std::byte* to) {
  const std::size_t step = hn::Lanes(U8());
  Coder<Rule, Encoder, DrawSource> coder(encoder, draws);
  for (std::size_t i = 0; i < n; i += step) {
    for (std::size_t line = 0; line < step; line += 16) hwy::Prefetch(x + i + prefetch_distance + line);
    store_next(Rule(), coder, x + i, to + i / 8 * Rule::bits);
  }
}

template <class Rule, Scaling scaling>
HWY_INLINE void encode_scaled(detail::Coefficients coefficients, std::span<const float> x, detail::DrawKeys keys,
                              std::uint32_t low, std::byte* to) {
  const VectorEncoder<scaling> encoder(coefficients);
  const std::size_t rest = x.size() % bucket_unit;
  const float* from = x.data();
  std::byte* const end = to + (x.size() - rest) / 8 * Rule::bits;
  alignas(64) std::array<float, bucket_unit> last_x;
  alignas(64) std::array<std::byte, bucket_unit> last_codes;
  // The last elements are padded with zeros, whose codes are not written.
  for (bool is_tail = false;; is_tail = true) {
    const std::size_t n = is_tail ? bucket_unit : x.size() - rest;
    for_each_run<Rule>(n, keys, low, [&](std::size_t at, std::size_t count, const auto& draws) HWY_ATTR {
      encode_units<Rule>(encoder, from + at, count, draws, to + at / 8 * Rule::bits);
    });
    if (is_tail) break;
    if (rest == 0) return;
    last_x.fill(0);
    std::copy(x.end() - static_cast<std::ptrdiff_t>(rest), x.end(), last_x.begin());
    low += static_cast<std::uint32_t>(n), from = last_x.data(), to = last_codes.data();
  }
  const std::size_t bits = rest * Rule::bits;
  if (bits % 8 != 0) last_codes[bits / 8] &= static_cast<std::byte>((1u << bits % 8) - 1);
  std::memcpy(end, last_codes.data(), (bits + 7) / 8);
}

/// `largest`: a magnitude that no element of x exceeds; not used by a rule with one level.
template <class Rule>
HWY_INLINE void encode_bucket(detail::Coefficients coefficients, float largest, std::span<const float> x,
                              const detail::Draws& draws, std::size_t at, std::byte* to) {
  if (Rule::random && draws.crosses(at, x.size())) {  // happens once in 2^32 elements
    std::memset(to, 0, (x.size() * Rule::bits + 7) / 8);
    return detail::encode_plain_codes<Rule>(coefficients, x, draws, at, to);
  }
  const detail::DrawKeys keys = draws.keys(at);
  const auto low = static_cast<std::uint32_t>(draws.number(at));
  if (scaling_for<Rule>(coefficients, largest) == Scaling::direct) {
    encode_scaled<Rule, Scaling::direct>(coefficients, x, keys, low, to);
  } else {
    encode_scaled<Rule, Scaling::general>(coefficients, x, keys, low, to);
  }
}

template <class Rule>
void encode_buckets(const detail::EncodeJob& job) {
  using Scale = typename Rule::Scale;
  const WireLayout& layout = job.layout;
  const std::size_t n = job.x.size(), scale_bytes = layout.scale_bytes(n), buckets = layout.buckets(n);
  std::byte* codes = job.wire + scale_bytes;
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t at = b * layout.bucket;
    const auto x = job.x.subspan(at, std::min(layout.bucket, n - at));
    const float norm = job.norm == detail::Norm::max ? max_norm(x.data(), x.size()) : l2_norm(x.data(), x.size());
    const Scale scale = Rule::scale(norm);
    std::memcpy(job.wire + b * sizeof(Scale), &scale, sizeof(Scale));
    std::byte* to = codes + at / 8 * Rule::bits;
    if (norm > 0) {
      encode_bucket<Rule>(Rule::encoder(norm), norm, x, job.draws, at, to);
    } else {
      std::memset(to, 0, (x.size() * Rule::bits + 7) / 8);
    }
  }
  std::memset(job.wire + buckets * sizeof(Scale), 0, scale_bytes - buckets * sizeof(Scale));
  const std::size_t used = n / 8 * Rule::bits + (n % 8 * Rule::bits + 7) / 8;
  std::memset(codes + used, 0, layout.total_bytes(n) - scale_bytes - used);
}

template <class Rule>
HWY_INLINE Floats value_at(Rule, const VectorCoefficients& decoder, const std::byte* codes, std::size_t v) {
  return vector_value(Rule(), decoder, codes_at_top<Rule::bits>(codes, v));
}

/// Adds up `count` vectors of all parts in registers, and stores the sums. value(p, v) is part p's vector v.
template <std::size_t count, bool add, Store store, class Value>
HWY_INLINE void sum_vectors(std::size_t parts, const Value& value, const float* addend, float* out) {
  const F32 df;
  const std::size_t lanes = hn::Lanes(df);
  Floats sums[count];
#pragma GCC unroll 8
  for (std::size_t v = 0; v < count; ++v) {
    sums[v] = value(0, v);
    if constexpr (add) sums[v] = hn::Add(hn::LoadU(df, addend + v * lanes), sums[v]);
  }
  for (std::size_t p = 1; p < parts; ++p) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < count; ++v) sums[v] = hn::Add(sums[v], value(p, v));
  }
#pragma GCC unroll 8
  for (std::size_t v = 0; v < count; ++v) store_floats<store>(sums[v], out + v * lanes);
}

/// One part's codes of a bucket, or of the bucket's last elements.
struct BucketPart {
  const std::byte* codes = nullptr;
  detail::Coefficients decoder;
};

/// Decodes n elements, a multiple of bucket_unit.
template <class Rule, Scaling scaling, bool add, Store store>
HWY_INLINE void decode_units(std::span<const BucketPart> parts, std::size_t n, const float* addend, float* out) {
  const std::size_t lanes = hn::Lanes(F32());
  constexpr std::size_t unit_bytes = bucket_unit / 8 * Rule::bits;
  for (std::size_t i = 0; i < n; i += bucket_unit) {
    const std::size_t from = i / 8 * Rule::bits;
    const auto sum = [&](auto at_once) HWY_ATTR __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (std::size_t v = 0; v * lanes < bucket_unit; v += at_once) {
        const auto value = [&](std::size_t p, std::size_t k) HWY_ATTR __attribute__((always_inline)) {
          return value_at(Rule(), VectorDecoder<scaling>(parts[p].decoder), parts[p].codes + from, v + k);
        };
        sum_vectors<at_once, add, store>(parts.size(), value, addend + i + v * lanes, out + i + v * lanes);
      }
    };
    constexpr std::integral_constant<std::size_t, 4> four;
    if (parts.size() == 1) {
      sum(four);
      continue;
    }
    for (const BucketPart& part : parts) prefetch_codes<unit_bytes>(part.codes + from);
    // From memory, several parts are summed faster if each is read a whole line at a time.
    if constexpr (HWY_TARGET == HWY_AVX2 && !add) {
      sum(std::integral_constant<std::size_t, 8>());
    } else {
      sum(four);
    }
  }
}

template <class Rule, Scaling scaling, bool add, Store store>
HWY_INLINE void decode_bucket(std::span<const BucketPart> parts, std::size_t n, const float* addend, float* out) {
  const std::size_t whole = n / bucket_unit * bucket_unit, rest = n - whole;
  decode_units<Rule, scaling, add, store>(parts, whole, addend, out);
  if (rest == 0) return;
  alignas(64) std::array<std::byte, detail::most_parts * bucket_unit> last{};
  alignas(64) std::array<float, bucket_unit> values{};
  std::array<BucketPart, detail::most_parts> ends;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    std::byte* codes = last.data() + p * bucket_unit;
    std::memcpy(codes, parts[p].codes + whole / 8 * Rule::bits, (rest * Rule::bits + 7) / 8);
    ends[p] = {codes, parts[p].decoder};
  }
  if (add) std::copy(addend + whole, addend + n, values.begin());
  decode_units<Rule, scaling, add, Store::cached>(std::span(ends).first(parts.size()), bucket_unit, values.data(),
                                                  values.data());
  std::copy(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rest), out + whole);
}

/// True if a bucket can be decoded with Scaling::direct. A result of type std::false_type: no bucket of the rule can.
template <class Rule>
HWY_INLINE auto is_direct(Rule, std::span<const BucketPart> parts, std::size_t) {
  if constexpr (requires { Rule::direct(parts[0].decoder); }) {
    return std::ranges::all_of(parts, Rule::direct, &BucketPart::decoder);
  } else {
    return std::false_type();
  }
}

template <class Rule, bool add, Store store>
void decode_all(const detail::DecodeJob& job) {
  const WireLayout& layout = job.layout;
  const std::size_t n = job.out.size();
  std::array<BucketPart, detail::most_parts> memory;
  const auto parts = std::span(memory).first(job.parts.size());
  for (std::size_t b = 0; b < layout.buckets(n); ++b) {
    const std::size_t at = b * layout.bucket;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      parts[p] = {job.parts[p].codes + at / 8 * Rule::bits, detail::decoder_of<Rule>(job.parts[p], b)};
    }
    const std::size_t count = std::min(layout.bucket, n - at);
    const float* addend = add ? job.addend + at : nullptr;
    using IsDirect = decltype(is_direct(Rule(), std::span<const BucketPart>(parts), count));
    if constexpr (!std::is_same_v<IsDirect, std::false_type>) {
      if (is_direct(Rule(), std::span<const BucketPart>(parts), count)) {
        decode_bucket<Rule, Scaling::direct, add, store>(parts, count, addend, job.out.data() + at);
        continue;
      }
    }
    decode_bucket<Rule, Scaling::general, add, store>(parts, count, addend, job.out.data() + at);
  }
  if (store == Store::streaming) hwy::FlushStream();
}

template <class Rule>
void decode_buckets(const detail::DecodeJob& job) {
  const bool non_temporal = store_for(job) == Store::streaming;
  if (job.addend)
    return non_temporal ? decode_all<Rule, true, Store::streaming>(job) : decode_all<Rule, true, Store::cached>(job);
  return non_temporal ? decode_all<Rule, false, Store::streaming>(job) : decode_all<Rule, false, Store::cached>(job);
}

#endif
}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
