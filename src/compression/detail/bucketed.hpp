// Shared by the bucketed codecs: where scales and codes are, the norm of a bucket, the loop over buckets. A codec adds
// a rule: how one number becomes a code and back.
#pragma once
#include <array>
#include <memory>
#include <string>

#include "compression/detail/draws.hpp"
#include "compression/detail/tree_sum.hpp"
#include "compression/detail/vectorised.hpp"
#include "core/name.hpp"

namespace gradmeter::compression::detail {

enum class Norm : std::uint8_t { max, l2 };
enum class Rounding : std::uint8_t { stochastic, nearest };
/// The draw that rounds to nearest: one half.
inline constexpr std::uint32_t half_draw = 1u << 23;

/// Buckets begin at multiples of this, so that their codes begin at whole bytes whatever the bits.
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

class Bucketed final : public Vectorised {
 public:
  struct Settings {
    WireLayout layout;
    Norm norm = Norm::max;
    Loops fast, plain;
  };
  Bucketed(std::string name, const Settings&);
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

/// The parameter `bucket`. Errors: UsageError unless it is a multiple of 64 from 64 to 2^20.
std::size_t bucket_of(const core::ParsedName&);
Norm norm_of(const core::ParsedName&);          ///< the parameter `norm`
Rounding rounding_of(const core::ParsedName&);  ///< the parameter `rounding`

/// max |x|, NaN when any x is not finite.
float max_norm(std::span<const float> x);
/// In doubles, by pieces (tree_sum.hpp): the order is part of the codes.
double sum_of_squares(std::span<const float> x);
/// Root of the sum of squares, at most the largest float; NaN when any x is not finite.
float l2_norm(std::span<const float> x);
/// Their parts: partial sums of one piece; the root of a sum.
void add_squares(std::span<const float> x, std::array<double, sum_lanes>& partial);
float l2_of(double sum);

/// A power of two by which numbers up to `norm` are multiplied first, so that neither they nor 1/norm leave the floats.
/// Exact for every float.
constexpr float prescale_for(float norm) { return norm < 0x1p-60f ? 0x1p64f : 1.0f; }

}  // namespace gradmeter::compression::detail
