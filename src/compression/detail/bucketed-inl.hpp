// The loop over buckets with vectors. Included once for each instruction set, so the include guard is unusual.
// A codec specialises two templates for its rule (see bucketed_plain.hpp):
//   VectorEncoder<Rule>(const Rule::Encoder&).code(Floats x, Words draw), in the low bits, lanes in [-128, 255]
//   VectorDecoder<Rule>(const Rule::Decoder&).value(Words code), the code at the top of its lane.
// Where there are no vectors (HWY_SCALAR) the plain loops run, and the templates need not be there.
#if defined(GRADMETER_BUCKETED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADMETER_BUCKETED_INL
#undef GRADMETER_BUCKETED_INL
#else
#define GRADMETER_BUCKETED_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "compression/detail/bits-inl.hpp"
#include "compression/detail/bucketed_plain.hpp"

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

using detail::bucket_unit;

template <class Rule>
struct VectorEncoder;
template <class Rule>
struct VectorDecoder;

/// max_norm. As integers: there NaN and infinity are larger than any number.
HWY_INLINE float max_norm(const float* x, std::size_t n) {
  const F32 df;
  const I32 di;
  const std::size_t lanes = hn::Lanes(df);
  const auto magnitude = hn::Set(di, 0x7fffffff);
  auto a = hn::Zero(di), b = a, c = a, d = a;
  const auto at = [&](const float* from) HWY_ATTR { return hn::And(hn::BitCast(di, hn::LoadU(df, from)), magnitude); };
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    for (std::size_t line = 0; line < 4 * lanes; line += 16) hwy::Prefetch(x + i + fetched_ahead + line);
    a = hn::Max(a, at(x + i));
    b = hn::Max(b, at(x + i + lanes));
    c = hn::Max(c, at(x + i + 2 * lanes));
    d = hn::Max(d, at(x + i + 3 * lanes));
  }
  const auto most = hn::MaxOfLanes(di, hn::Max(hn::Max(a, b), hn::Max(c, d)));
  std::int32_t bits = hn::GetLane(most);
  for (; i < n; ++i) bits = std::max(bits, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
  return bits < 0x7f800000 ? std::bit_cast<float>(bits) : std::numeric_limits<float>::quiet_NaN();
}

/// add_squares: sixteen partial sums, each in its lane.
HWY_INLINE void add_squares(const float* x, std::size_t n, std::array<double, detail::sum_lanes>& partial) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> df;
  const std::size_t lanes = hn::Lanes(d), whole = n / 16 * 16;
  for (std::size_t k = 0; k < 16; k += 2 * lanes) {
    auto a = hn::LoadU(d, partial.data() + k), b = hn::LoadU(d, partial.data() + k + lanes);
    for (std::size_t i = k; i < whole; i += 16) {
      const auto u = hn::PromoteTo(d, hn::LoadU(df, x + i)), v = hn::PromoteTo(d, hn::LoadU(df, x + i + lanes));
      a = hn::Add(a, hn::Mul(u, u));
      b = hn::Add(b, hn::Mul(v, v));
    }
    hn::StoreU(a, d, partial.data() + k);
    hn::StoreU(b, d, partial.data() + k + lanes);
  }
  detail::add_squares({x + whole, n - whole}, partial);
}

HWY_INLINE double piece_of_squares(const float* x, std::size_t n) {
  alignas(64) std::array<double, detail::sum_lanes> partial{};
  add_squares(x, n, partial);
  return detail::pairwise(partial);
}

HWY_INLINE float l2_norm(const float* x, std::size_t n) {
  return detail::l2_of(detail::sum_by_pieces(
      n, [x](std::size_t first, std::size_t count) HWY_ATTR { return piece_of_squares(x + first, count); }));
}

/// Codes of one element after the other, a vector of bytes at a time.
template <class Rule>
class Coder {
 public:
  HWY_INLINE Coder(const VectorEncoder<Rule>& encoder, detail::DrawKeys keys, std::uint32_t low)
      : encoder_(encoder),
        second_(hn::Set(U32(), keys.second)),
        number_(hn::Add(hn::Iota(U32(), 0), hn::Set(U32(), low + keys.first))) {}
  /// Of as many elements as there are bytes in a vector.
  HWY_INLINE CodeBytes next_bytes(const float* x) {
    const std::size_t lanes = hn::Lanes(F32());
    const Words a = next(x), b = next(x + lanes), c = next(x + 2 * lanes), d = next(x + 3 * lanes);
    return low_bytes(a, b, c, d);
  }

 private:
  HWY_INLINE Words next(const float* x) {
    const U32 d;
    const Words draw = Rule::random ? draw_of(number_, second_) : hn::Set(d, detail::half_draw);
    number_ = hn::Add(number_, hn::Set(d, static_cast<std::uint32_t>(hn::Lanes(d))));
    return encoder_.code(hn::LoadU(F32(), x), draw);
  }
  const VectorEncoder<Rule>& encoder_;
  Words second_, number_;
};

/// Codes of n elements, whole units.
template <class Rule>
HWY_INLINE void encode_units(const VectorEncoder<Rule>& encoder, const float* x, std::size_t n, detail::DrawKeys keys,
                             std::uint32_t low, std::byte* to) {
  const std::size_t step = hn::Lanes(U8());
  Coder<Rule> coder(encoder, keys, low);
  for (std::size_t i = 0; i < n; i += step) store_codes<Rule::bits>(coder.next_bytes(x + i), to + i / 8 * Rule::bits);
}

/// The last elements of a span, less than a unit: padded with zeros to one. `to` is zero beforehand.
template <class Rule>
HWY_INLINE void encode_tail(const VectorEncoder<Rule>& encoder, std::span<const float> x, detail::DrawKeys keys,
                            std::uint32_t low, std::byte* to) {
  alignas(64) std::array<float, bucket_unit> padded_x{};
  alignas(64) std::array<std::byte, bucket_unit> codes{};
  std::copy(x.begin(), x.end(), padded_x.begin());
  encode_units<Rule>(encoder, padded_x.data(), bucket_unit, keys, low, codes.data());
  const std::size_t bits = x.size() * Rule::bits;
  if (bits % 8 != 0) codes[bits / 8] &= static_cast<std::byte>((1u << bits % 8) - 1);
  std::memcpy(to, codes.data(), (bits + 7) / 8);
}

template <class Rule>
void encode_bucket(const typename Rule::Encoder& rule, std::span<const float> x, const detail::Draws& draws,
                   std::size_t at, std::byte* to) {
  if (Rule::random && draws.crosses(at, x.size())) {  // once in 2^32 elements
    std::memset(to, 0, (x.size() * Rule::bits + 7) / 8);
    return detail::encode_plain_codes<Rule>(rule, x, draws, at, to);
  }
  const VectorEncoder<Rule> encoder(rule);
  const detail::DrawKeys keys = draws.keys(at);
  const auto low = static_cast<std::uint32_t>(draws.number(at));
  const std::size_t whole = x.size() / bucket_unit * bucket_unit;
  encode_units<Rule>(encoder, x.data(), whole, keys, low, to);
  if (whole < x.size()) {
    encode_tail<Rule>(encoder, x.subspan(whole), keys, low + static_cast<std::uint32_t>(whole),
                      to + whole / 8 * Rule::bits);
  }
}

template <class Rule>
void encode_buckets(const detail::EncodeJob& job) {
  using Scale = typename Rule::Scale;
  const WireLayout& layout = job.layout;
  const std::size_t n = job.x.size(), scales = layout.scales(n), buckets = layout.buckets(n);
  std::byte* codes = job.wire + scales;
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t at = b * layout.bucket;
    const auto x = job.x.subspan(at, std::min(layout.bucket, n - at));
    const float norm = job.norm == detail::Norm::max ? max_norm(x.data(), x.size()) : l2_norm(x.data(), x.size());
    const Scale scale = Rule::scale(norm);
    std::memcpy(job.wire + b * sizeof(Scale), &scale, sizeof(Scale));
    std::byte* to = codes + at / 8 * Rule::bits;
    if (norm > 0) {
      encode_bucket<Rule>(typename Rule::Encoder(norm), x, job.draws, at, to);
    } else {
      std::memset(to, 0, (x.size() * Rule::bits + 7) / 8);
    }
  }
  std::memset(job.wire + buckets * sizeof(Scale), 0, scales - buckets * sizeof(Scale));
  const std::size_t used = n / 8 * Rule::bits + (n % 8 * Rule::bits + 7) / 8;
  std::memset(codes + used, 0, layout.wire(n) - scales - used);
}

template <class Rule, bool add, Put put>
HWY_INLINE void decode_units(const VectorDecoder<Rule>& decoder, const std::byte* codes, std::size_t n,
                             const float* addend, float* out) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < n; i += bucket_unit) {
    const std::byte* from = codes + i / 8 * Rule::bits;
    for (std::size_t v = 0; v * lanes < bucket_unit; ++v) {
      Floats value = decoder.value(codes_at_top<Rule::bits>(from, v));
      if constexpr (add) value = hn::Add(hn::LoadU(d, addend + i + v * lanes), value);
      put_down<put>(value, out + i + v * lanes);
    }
  }
}

template <class Rule, bool add, Put put>
HWY_INLINE void decode_bucket(const VectorDecoder<Rule>& decoder, const std::byte* codes, std::size_t n,
                              const float* addend, float* out) {
  const std::size_t whole = n / bucket_unit * bucket_unit, rest = n - whole;
  decode_units<Rule, add, put>(decoder, codes, whole, addend, out);
  if (rest == 0) return;
  alignas(64) std::array<std::byte, bucket_unit> last{};
  alignas(64) std::array<float, bucket_unit> values{};
  std::memcpy(last.data(), codes + whole / 8 * Rule::bits, (rest * Rule::bits + 7) / 8);
  if (add) std::copy(addend + whole, addend + n, values.begin());
  decode_units<Rule, add, Put::store>(decoder, last.data(), bucket_unit, values.data(), values.data());
  std::copy(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rest), out + whole);
}

template <class Rule, bool add, Put put>
void decode_all(const detail::DecodeJob& job) {
  using Scale = typename Rule::Scale;
  const WireLayout& layout = job.layout;
  const std::size_t n = job.out.size();
  const std::byte* codes = job.wire.data() + layout.scales(n);
  for (std::size_t b = 0; b < layout.buckets(n); ++b) {
    const std::size_t at = b * layout.bucket;
    Scale scale;
    std::memcpy(&scale, job.wire.data() + b * sizeof(Scale), sizeof(Scale));
    const VectorDecoder<Rule> decoder{typename Rule::Decoder(scale)};
    decode_bucket<Rule, add, put>(decoder, codes + at / 8 * Rule::bits, std::min(layout.bucket, n - at),
                                  add ? job.addend + at : nullptr, job.out.data() + at);
  }
  if (put == Put::stream) hwy::FlushStream();
}

template <class Rule>
void decode_buckets(const detail::DecodeJob& job) {
  const bool streams = put_for(job) == Put::stream;
  if (job.addend) return streams ? decode_all<Rule, true, Put::stream>(job) : decode_all<Rule, true, Put::store>(job);
  return streams ? decode_all<Rule, false, Put::stream>(job) : decode_all<Rule, false, Put::store>(job);
}

#endif
}  // namespace gradmeter::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
