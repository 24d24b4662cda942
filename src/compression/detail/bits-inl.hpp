// Codes of 1, 2, 4 or 8 bits between 32-bit lanes and the wire; random draws; stores of decoded numbers. Included once
// for each instruction set, so the include guard is unusual.
#if defined(GRADMETER_BITS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADMETER_BITS_INL
#undef GRADMETER_BITS_INL
#else
#define GRADMETER_BITS_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>

#include "compression/detail/bucketed.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradmeter::compression::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;  // four vectors of codes are at most a bucket's unit
using U32 = hn::Repartition<std::uint32_t, F32>;
using I32 = hn::Repartition<std::int32_t, F32>;
using U16 = hn::Repartition<std::uint16_t, F32>;
using U8 = hn::Repartition<std::uint8_t, F32>;
using Floats = hn::Vec<F32>;
using Words = hn::Vec<U32>;
using CodeBytes = hn::Vec<U8>;

HWY_INLINE std::uint8_t* bytes_at(std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); }
HWY_INLINE const std::uint8_t* bytes_at(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }

/// How far ahead sequential reads are prefetched [elements].
inline constexpr std::size_t fetched_ahead = 1024;

/// How decoded numbers are stored: through the caches, or by non-temporal stores, which need whole aligned vectors.
enum class Put { store, stream };

template <Put put>
HWY_INLINE void put_down(Floats v, float* to) {
  if constexpr (put == Put::stream) {
    hn::Stream(v, F32(), to);
  } else {
    hn::StoreU(v, F32(), to);
  }
}

/// Outputs of this size or more would not stay in the caches; non-temporal stores then save reading their lines
/// [bytes].
inline constexpr std::size_t streamed_from = std::size_t{32} << 20;

HWY_INLINE Put put_for(const detail::DecodeJob& job) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(job.out.data()) % 64 == 0;
  return aligned && job.out.size_bytes() >= streamed_from && job.addend != job.out.data() ? Put::stream : Put::store;
}

/// DrawKeys::draw of each lane; `numbers` has keys.first added already.
HWY_INLINE Words draw_of(Words numbers, Words second) {
  using detail::DrawKeys;
  const U32 d;
  Words x = hn::Xor(numbers, hn::ShiftRight<DrawKeys::shift[0]>(numbers));
  x = hn::Mul(x, hn::Set(d, DrawKeys::multiplier[0]));
  x = hn::Xor(hn::Xor(x, second), hn::ShiftRight<DrawKeys::shift[1]>(x));
  return hn::ShiftRight<8>(hn::Mul(x, hn::Set(d, DrawKeys::multiplier[1])));
}

/// The low bytes of four vectors in order. Lanes lie in [-128, 255].
HWY_INLINE CodeBytes low_bytes(Words a, Words b, Words c, Words d) {
  const I32 di;
  const hn::Repartition<std::int16_t, F32> d16;
  // Per block of 16 bytes: four of a, four of b; four of c, four of d; then a and c, b and d side by side.
  const auto ab = hn::ReorderDemote2To(d16, hn::BitCast(di, a), hn::BitCast(di, b));
  const auto cd = hn::ReorderDemote2To(d16, hn::BitCast(di, c), hn::BitCast(di, d));
  const auto both = hn::Or(hn::And(ab, hn::Set(d16, 0xff)), hn::ShiftLeft<8>(cd));
  alignas(16) static constexpr std::uint8_t in_block[16] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};
  const auto sorted = hn::TableLookupBytes(hn::BitCast(U8(), both), hn::LoadDup128(U8(), in_block));
  const std::size_t blocks = hn::Lanes(U32()) / 4;
  if (blocks == 1) return sorted;
  alignas(64) std::uint32_t order[16];
  for (std::size_t i = 0; i < 4 * blocks; ++i) order[i] = static_cast<std::uint32_t>(i % blocks * 4 + i / blocks);
  return hn::BitCast(U8(), hn::TableLookupLanes(hn::BitCast(U32(), sorted), hn::SetTableIndices(U32(), order)));
}

/// Bytes to the low `bits` of each, packed.
template <std::size_t bits>
HWY_INLINE void store_codes(CodeBytes v, std::byte* to) {
  static_assert(bits == 1 || bits == 2 || bits == 4 || bits == 8);
  if constexpr (bits == 8) {
    hn::StoreU(v, U8(), bytes_at(to));
  } else if constexpr (bits == 4) {
    const auto pairs = hn::BitCast(U16(), hn::And(v, hn::Set(U8(), 0x0f)));
    const hn::Rebind<std::uint8_t, U16> d;
    hn::StoreU(hn::TruncateTo(d, hn::Or(pairs, hn::ShiftRight<4>(pairs))), d, bytes_at(to));
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
    // The word that holds a lane's code, whose place in it is the lane's.
    constexpr std::uint32_t per_word = 32 / bits;
    constexpr int log2_bits = bits == 4 ? 2 : bits == 2 ? 1 : 0;
    const auto place = hn::And(hn::Iota(d, 0), hn::Set(d, per_word - 1));
    const auto up = hn::Sub(hn::Set(d, 32 - bits), hn::ShiftLeft<log2_bits>(place));
    std::uint64_t word = 0;
    if (lanes * bits == 64) {
      std::memcpy(&word, from + at / 8, 8);
      const auto words = hn::BitCast(d, hn::Set(hn::Repartition<std::uint64_t, U32>(), word));
      const auto which = hn::IndicesFromVec(d, hn::ShiftRight < bits == 4 ? 3 : 4 > (hn::Iota(d, 0)));
      return hn::Shl(hn::TableLookupLanes(words, which), up);
    }
    if (lanes * bits == 32) std::memcpy(&word, from + at / 8, 4);
    if (lanes * bits == 16) std::memcpy(&word, from + at / 8, 2);
    if (lanes * bits <= 8) word = std::to_integer<std::uint64_t>(from[at / 8]) >> at % 8;
    return hn::Shl(hn::Set(d, static_cast<std::uint32_t>(word)), up);
  }
}

#endif
}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
