// SPDX-License-Identifier: Apache-2.0
// The parts that codecs with one scale for each bucket share: the places of scales and codes, the norm of a bucket, and
// the loop over buckets. A codec adds a rule, which says how one number becomes a code and back. Each codec has two
// sets of loops: plain ones, which define its results, and fast ones with vectors (bucketed-inl.hpp).
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
/// The draw that makes `stochastic` rounding round to nearest: one half.
inline constexpr std::uint32_t half_draw = 1u << 23;

/// Buckets begin at multiples of this [elements], so that their codes begin at whole bytes for every number of bits.
inline constexpr std::size_t bucket_unit = 64;

struct EncodeJob {
  std::span<const float> x;
  std::byte* wire = nullptr;
  WireLayout layout;
  Norm norm = Norm::max;
  Draws draws;
};
struct DecodeJob {
  std::span<const std::byte> wire;
  const float* addend = nullptr;  ///< null: nothing is added
  std::span<float> out;
  WireLayout layout;
};
struct Loops {
  void (*encode)(const EncodeJob&) = nullptr;
  void (*decode)(const DecodeJob&) = nullptr;
};

class Bucketed final : public Codec {
 public:
  Bucketed(std::string name, const WireLayout&, Norm, const Loops& fast, const Loops& plain);
  std::size_t grain() const override { return layout_.bucket; }
  std::size_t wire_bytes(std::size_t n) const override { return layout_.wire(n); }
  std::optional<WireLayout> layout() const override { return layout_; }
  std::size_t encode(std::span<const float> x, std::byte* wire, const Draw&) const override;
  void decode(std::span<const std::byte> wire, std::span<float> out) const override;
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override;
  const Codec& reference() const override { return reference_ ? *reference_ : *this; }

 private:
  WireLayout layout_;
  Norm norm_;
  Loops loops_;
  std::unique_ptr<const Bucketed> reference_;  ///< null in the reference itself
};

/// Reads the parameter `bucket`. Errors: UsageError unless it is a multiple of 64 from 64 to 2^20.
std::size_t bucket_of(const core::ParsedName&);
Norm norm_of(const core::ParsedName&);          ///< the parameter `norm`
Rounding rounding_of(const core::ParsedName&);  ///< the parameter `rounding`

/// max |x|, NaN when any x is not finite.
float max_norm(std::span<const float> x);
/// The sum of squares, in doubles, by pieces (tree_sum.hpp). Codes depend on its order.
double sum_of_squares(std::span<const float> x);
/// The root of the sum of squares, at most the largest float; NaN when any x is not finite.
float l2_norm(std::span<const float> x);
/// The parts of sum_of_squares and l2_norm: the partial sums of one piece, and the root of a sum.
void add_squares(std::span<const float> x, std::array<double, sum_lanes>& partial);
float l2_of(double sum);

/// The two numbers with which a rule encodes or decodes the elements of a bucket.
struct Coefficients {
  float first = 0, second = 0;
};

/// Two factors. A number multiplied by one after the other is scaled such that `norm` becomes `top`. The first factor
/// is a power of two, and therefore exact, so that neither products nor 1/norm leave the range of floats. The
/// arithmetic is fp32, since each warp of a GPU divides.
GRADMETER_HOST_DEVICE constexpr Coefficients factors_to(float top, float norm) {
  const float prescale = norm < 0x1p-60f ? 0x1p64f : 1.0f;
  return {prescale, top / (norm * prescale)};
}

// The loop over buckets in plain code, which is the reference. A rule is a type with these static members:
//   bits, Scale (on the wire), random (whether it draws);
//   Scale scale(float norm), where the norm of a bucket that is not finite is NaN;
//   Coefficients encoder(float norm) and std::uint32_t code(Coefficients, float x, std::uint32_t draw), for a norm that
//   is neither 0 nor NaN; other buckets have codes of 0;
//   Coefficients decoder(Scale) and float value(Coefficients, std::uint32_t code).

/// Encodes x [n], which are the elements of the tensor from `at` on, to codes 0 … n-1. `codes` must be zero at first,
/// and begins at a whole byte.
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
  std::byte* codes = job.wire + layout.scales(n);
  std::fill(job.wire, job.wire + layout.wire(n), std::byte{0});
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
void decode_plain(const DecodeJob& job) {
  const WireLayout& layout = job.layout;
  const std::size_t n = job.out.size();
  const std::byte* codes = job.wire.data() + layout.scales(n);
  for (std::size_t b = 0; b < layout.buckets(n); ++b) {
    typename Rule::Scale scale;
    std::memcpy(&scale, job.wire.data() + b * sizeof(scale), sizeof(scale));
    const Coefficients decoder = Rule::decoder(scale);
    const std::size_t end = std::min(n, (b + 1) * layout.bucket);
    for (std::size_t i = b * layout.bucket; i < end; ++i) {
      const auto byte = std::to_integer<std::uint32_t>(codes[i / 8 * Rule::bits + i % 8 * Rule::bits / 8]);
      const float value = Rule::value(decoder, byte >> i * Rule::bits % 8 & ((1u << Rule::bits) - 1));
      job.out[i] = job.addend ? job.addend[i] + value : value;
    }
  }
}

/// Makes the codec that is called `name`, with this rule and the bucket length that the parameter `bucket` gives.
template <class Rule>
std::unique_ptr<Codec> make_bucketed(const core::ParsedName& name, const Loops& fast, Norm norm = Norm::max) {
  const WireLayout layout{.bucket = bucket_of(name), .bits = Rule::bits, .scale_width = sizeof(typename Rule::Scale)};
  return std::make_unique<Bucketed>(name.canonical(), layout, norm, fast,
                                    Loops{encode_plain<Rule>, decode_plain<Rule>});
}

}  // namespace gradmeter::compression::detail
