// SPDX-License-Identifier: Apache-2.0
// The code of all codecs that cut a tensor into buckets (runs of elements with a common scale): where scales and codes
// lie in the encoded bytes, the norm of a bucket, and the loop over buckets. Each codec adds a rule, which turns one
// number into a code and a code into a number. Each codec has two sets of loops: plain ones, which define its results,
// and fast ones with vectors (bucketed-inl.hpp).
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "compression/codec.hpp"
#include "compression/detail/draws.hpp"
#include "compression/detail/tree_sum.hpp"
#include "core/host_device.hpp"
#include "core/name.hpp"

namespace gradmeter::compression::detail {

enum class Norm : std::uint8_t { max, l2 };
enum class Rounding : std::uint8_t { stochastic, nearest };
/// The middle of the range [0, 2^24) of draws. With this draw, stochastic rounding rounds to nearest.
inline constexpr std::uint32_t half_draw = 1u << 23;

/// The parameter `bucket` is a multiple of this [elements], so that the codes of every bucket begin at a whole byte.
inline constexpr std::size_t bucket_unit = 64;

struct EncodeJob {
  std::span<const float> x;
  std::byte* wire = nullptr;
  WireLayout layout;
  Norm norm = Norm::max;
  Draws draws;
};
/// One encoded tensor: the addresses of the first scale and of the first code to be decoded.
struct Encoded {
  const std::byte *scales = nullptr, *codes = nullptr;
};
/// The most encodings that one DecodeJob adds up.
inline constexpr std::size_t most_parts = 16;
/// out[i] = addend[i] + the decoded element i of each part, added in fp32 in the order of the parts.
struct DecodeJob {
  std::span<const Encoded> parts;  ///< 1 to most_parts encodings of the same elements
  const float* addend = nullptr;   ///< null: nothing is added
  std::span<float> out;
  WireLayout layout;
};
/// For loops that decode one part at a time: calls decode_one(part, addend) for each, with the sum so far as `addend`.
template <class DecodeOne>
void part_by_part(const DecodeJob& job, const DecodeOne& decode_one) {
  const float* addend = job.addend;
  for (const Encoded& part : job.parts) {
    decode_one(part, addend);
    addend = job.out.data();
  }
}

/// The loops of a codec over all elements of a span.
struct Loops {
  void (*encode)(const EncodeJob&) = nullptr;
  void (*decode)(const DecodeJob&) = nullptr;
};

/// A codec that runs the loops `fast`; its reference() runs the loops `plain`.
class BucketedCodec final : public Codec {
 public:
  BucketedCodec(std::string name, const WireLayout&, Norm, const Loops& fast, const Loops& plain);
  std::size_t grain() const override { return layout_.bucket; }
  std::size_t wire_bytes(std::size_t n) const override { return layout_.total_bytes(n); }
  std::optional<WireLayout> layout() const override { return layout_; }
  std::size_t encode(std::span<const float> x, std::byte* wire, const RandomDraw&) const override;
  void decode(std::span<const std::byte> wire, std::span<float> out) const override;
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override;
  void decode_sum(std::span<const std::span<const std::byte>> wires, std::size_t n, std::size_t first,
                  std::span<float> out) const override;
  const Codec& reference() const override { return reference_ ? *reference_ : *this; }

 private:
  void sum(std::span<const std::span<const std::byte>> wires, std::size_t n, std::size_t first, const float* addend,
           std::span<float> out) const;

  WireLayout layout_;
  Norm norm_;
  Loops loops_;
  /// The same codec with plain loops; null if this codec has them itself.
  std::unique_ptr<const BucketedCodec> reference_;
};

/// Reads the parameter `bucket`. Errors: UsageError unless it is a multiple of 64 from 64 to 2^20.
std::size_t bucket_of(const core::ParsedName&);
Norm norm_of(const core::ParsedName&);          ///< the parameter `norm`
Rounding rounding_of(const core::ParsedName&);  ///< the parameter `rounding`

/// max |x|, NaN when any x is not finite.
float max_norm(std::span<const float> x);
/// The sum of squares in double, added in the order of sum_by_pieces (tree_sum.hpp). The order is fixed, because codes
/// depend on the last bits of the sum.
double sum_of_squares(std::span<const float> x);
/// The root of the sum of squares, at most the largest float; NaN when any x is not finite.
float l2_norm(std::span<const float> x);
/// A step of sum_of_squares: adds the squares of one piece to its partial sums.
void add_squares(std::span<const float> x, std::array<double, sum_lanes>& partial);
/// A step of l2_norm: the norm that belongs to this sum of squares.
float l2_of(double sum);

/// The two numbers with which a rule encodes or decodes the elements of a bucket.
struct Coefficients {
  float first = 0, second = 0;
};

/// Two factors: a number that is multiplied by `first` and then by `second` is scaled so that `norm` becomes `top`.
/// `first` is 1 except for two ranges of norms. Below 2^-60 it is 2^64, since top/norm could overflow; the product with
/// 2^64 is exact. Above 2^126 it is 2^-64, since top/norm could be subnormal, and some processors replace subnormals by
/// 0; this rounds only numbers that are far too small for a code other than 0. The arithmetic is fp32, since on a GPU
/// every warp does this division.
GRADMETER_HOST_DEVICE constexpr Coefficients factors_to(float top, float norm) {
  const float prescale = norm < 0x1p-60f ? 0x1p64f : norm > 0x1p126f ? 0x1p-64f : 1.0f;
  return {prescale, top / (norm * prescale)};
}

// The loops over buckets in plain code, which are the reference. A rule is a type with these static members:
//   bits, the number of bits of a code; Scale, the type of a bucket's encoded scale; random, true if codes depend on
//   draws;
//   Scale scale(float norm), where norm is NaN if an element of the bucket is not finite;
//   Coefficients encoder(float norm) and std::uint32_t code(Coefficients, float x, std::uint32_t draw), which are
//   called only if norm is neither 0 nor NaN; in other buckets all codes are 0;
//   Coefficients decoder(Scale) and float value(Coefficients, std::uint32_t code);
//   top, the largest scaled magnitude; only rules whose encoder() returns two factors for magnitudes have this member.

/// Encodes x, whose first element has index `at` in the span of `draws`. `codes` is where the code of x[0] begins; the
/// bytes from there on must be 0.
template <class Rule>
void encode_plain_codes(Coefficients encoder, std::span<const float> x, const Draws& draws, std::size_t at,
                        std::byte* codes) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t code = Rule::code(encoder, x[i], Rule::random ? draws.draw(at + i) : half_draw);
    codes[i * Rule::bits / 8] |= static_cast<std::byte>(code << i * Rule::bits % 8);
  }
}

template <class Rule>
void encode_plain(const EncodeJob& job) {
  const WireLayout& layout = job.layout;
  const std::size_t n = job.x.size();
  std::byte* codes = job.wire + layout.scale_bytes(n);
  std::fill(job.wire, job.wire + layout.total_bytes(n), std::byte{0});
  for (std::size_t b = 0; b < layout.buckets(n); ++b) {
    const std::size_t at = b * layout.bucket;
    const auto x = job.x.subspan(at, std::min(layout.bucket, n - at));
    const float norm = job.norm == Norm::max ? max_norm(x) : l2_norm(x);
    const typename Rule::Scale scale = Rule::scale(norm);
    std::memcpy(job.wire + b * sizeof(scale), &scale, sizeof(scale));
    if (norm > 0) encode_plain_codes<Rule>(Rule::encoder(norm), x, job.draws, at, codes + at / 8 * Rule::bits);
  }
}

template <class Rule>
Coefficients decoder_of(const Encoded& part, std::size_t bucket) {
  typename Rule::Scale scale;
  std::memcpy(&scale, part.scales + bucket * sizeof(scale), sizeof(scale));
  return Rule::decoder(scale);
}

template <class Rule>
void decode_plain(const DecodeJob& job) {
  const WireLayout& layout = job.layout;
  const std::size_t n = job.out.size();
  part_by_part(job, [&](const Encoded& part, const float* addend) {
    for (std::size_t b = 0; b < layout.buckets(n); ++b) {
      const Coefficients decoder = decoder_of<Rule>(part, b);
      const std::size_t end = std::min(n, (b + 1) * layout.bucket);
      for (std::size_t i = b * layout.bucket; i < end; ++i) {
        const auto byte = std::to_integer<std::uint32_t>(part.codes[i / 8 * Rule::bits + i % 8 * Rule::bits / 8]);
        const float value = Rule::value(decoder, byte >> i * Rule::bits % 8 & ((1u << Rule::bits) - 1));
        job.out[i] = addend ? addend[i] + value : value;
      }
    }
  });
}

/// Makes the codec of this name, with this rule and the bucket length in the name's parameter `bucket`.
template <class Rule>
std::unique_ptr<Codec> make_bucketed(const core::ParsedName& name, const Loops& fast, Norm norm = Norm::max) {
  const WireLayout layout{.bucket = bucket_of(name), .bits = Rule::bits, .scale_width = sizeof(typename Rule::Scale)};
  return std::make_unique<BucketedCodec>(name.canonical(), layout, norm, fast,
                                         Loops{encode_plain<Rule>, decode_plain<Rule>});
}

}  // namespace gradmeter::compression::detail
