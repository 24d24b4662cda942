// SPDX-License-Identifier: Apache-2.0
// Codecs whose levels are evenly spaced up to a norm, with either sign, and that round at random without bias: QSGD
// with 2, 4 and 8 bits an element, with one bit, and with the variable-length code of its paper; TernGrad, which has
// one scale for a whole span.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "compression/codec.hpp"
#include "compression/detail/bucketed.hpp"
#include "core/host_device.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// QSGD with codes of b = 8, 4 or 2 bits.
/// Wire: b + 32/bucket bits an element. s = 2^(b-1) - 1; N is the bucket's largest |x| (norm=max) or its Euclidean
/// length (norm=l2). The code is q = sgn(x)·min(floor(s·|x|/N + u), s), where u is uniform in [0, 1), or 1/2
/// (rounding=nearest). It decodes to N·q/s. Codes are in two's complement, without -2^(b-1). Mean squared error with
/// rounding=stochastic, which has no bias: (N/s)²·Σ f(1-f), where f is the fractional part of s·|x|/N.
/// Cost: reads and writes 4 + b/8 bytes an element to encode or decode, 8 + b/8 to decode and add.
/// Errors: UsageError unless `bucket` is a multiple of 64.
/// Source: Alistarh et al., NeurIPS 2017; the max norm as in Markov et al. (CGX), Middleware 2022.
std::unique_ptr<Codec> make_qsgd8(const core::ParsedName&);
std::unique_ptr<Codec> make_qsgd4(const core::ParsedName&);
std::unique_ptr<Codec> make_qsgd2(const core::ParsedName&);

/// True where, for Gaussian elements, the mean squared error of random rounding is larger than the elements' variance.
/// With variance 1, this error is (N/s)·E|x| - 1 if N/s, the distance between levels, is larger than nearly all
/// elements.
bool qsgd_may_lose_more(const core::ParsedName&);

/// One random bit an element.
/// Wire: 1 + 32/bucket bits an element. N is the bucket's largest |x|. With probability (1 + x/N)/2 the bit is 1, which
/// decodes to +N, else 0, which decodes to -N. The mean squared error of a bucket of d elements is d·N² - ‖x‖², without
/// bias.
/// Cost: reads and writes 4.1 bytes an element to encode or decode, 8.1 to decode and add.
/// Errors: UsageError unless `bucket` is a multiple of 64.
/// Source: Suresh et al., ICML 2017 (stochastic binary quantisation), between -N and N.
std::unique_ptr<Codec> make_qsgd1(const core::ParsedName&);

/// QSGD as in its paper: with the bucket's L2 norm most levels q are zero, and the variable-length code skips zeros.
/// q = sgn(x)·min(floor(s·|x|/N + u), s), where N is the bucket's L2 norm, s = `levels` (1 to 127) and u uniform in [0,
/// 1). It decodes to N·q/s. s·|x|/N is held as an integer in units of 2^-24, as in `qsgd8`.
/// Wire:   N of each bucket in fp32, padded; then a stream of bits, least significant first. Each q that is not 0 is
///         written as the gap from the previous q that is not 0 (for the first: from place -1), a sign bit and |q|. The
///         stream ends with the gap to place n. Gaps and |q| are in Elias' gamma code: as many zeros as the number has
///         bits behind its leading 1, then that 1, then those bits. The stream is padded to 16 bytes. wire_bytes(n) is
///         the length of an encoding in which each q is ±s.
/// Error:  without bias. For a bucket x that decodes to C: E|C-x|^2 = N^2/s^2 · sum f(1-f), where f is the fractional
///         part of s·|x|/N.
/// Errors: BackendError when an encoding was damaged on its way.
/// Source: Alistarh et al., NeurIPS 2017, section 3; Elias, IEEE Trans. Inf. Theory 1975.
std::unique_ptr<Codec> make_qsgd_elias(const core::ParsedName&);

/// True if the mean squared error of a bucket x can be larger than |x|^2. It is largest if all elements have the same
/// magnitude, and is then (sqrt(bucket)/s - 1)·|x|^2.
bool qsgd_elias_may_lose_more(const core::ParsedName&);

/// TernGrad: one scale for a whole span, and -1, 0 or +1 times it for each element.
/// Wire: 16 bytes, of which the first four are the fp32 scale M, and 2 bits an element; nothing for an empty span. Each
/// |x| is first clipped to at most clip·σ (clip=0: no clipping), where σ is the root mean square of the span; M is then
/// the largest |x|. Codes 00, 01, 11 stand for 0, +1, -1; a code is not zero with probability |x|/M. This is QSGD's
/// rule for two bits and the max norm. Mean squared error of one encoding: M·‖x‖₁ - ‖x‖² if nothing is clipped.
/// Clipping adds a bias, whose square is Σ (|x| - clip·σ)₊². Its grain is 1, but each call has its own scale, so codes
/// depend on how a tensor is cut into spans.
/// Cost: reads and writes 8.25 bytes an element to encode (x is read twice), 4.25 to decode, 8.25 to decode and add.
/// The parameter `exchange` is one of three. gather: every rank gets all ranks' encodings. sra: a schedule exchanges
/// encoded blocks. sum: codes are summed as integers with one scale for all ranks (see below); the sum of P codes needs
/// log2(2P + 1) bits, so each code is sent as one byte, which is enough for 127 ranks.
/// Errors: UsageError unless `clip` is a number from 0 to 1000 and `exchange` is one of the three.
/// Source: Wen et al., NeurIPS 2017.
std::unique_ptr<Codec> make_terngrad(const core::ParsedName&);

// The parts of TernGrad for a sum of integers. All ranks use one scale, the largest of their M.

/// Reads the parameter `clip`.
double ternary_clip(const core::ParsedName&);
/// The scale M of a span: 0 when all elements are zero, NaN when any is not finite. The sum of squares is in doubles,
/// in the fixed order of detail/tree_sum.hpp, since codes depend on it. Cost: reads x once.
float ternary_scale(std::span<const float> x, double clip);
/// Draws codes [x.size()] of -1, 0 or 1 as `terngrad` does. An |x| above `scale` counts as `scale`; where the scale is
/// 0 or NaN all codes are 0. Cost: reads and writes 5 bytes an element.
void ternary_quantise(std::span<const float> x, float scale, std::span<std::int8_t> codes, const RandomDraw&);
/// out [sums.size()] = scale · sum. Cost: reads and writes 5 bytes an element for sums of int8, 8 for sums of int32.
void ternary_decode(std::span<const std::int8_t> sums, float scale, std::span<float> out);
void ternary_decode(std::span<const std::int32_t> sums, float scale, std::span<float> out);

}  // namespace gradmeter::compression

namespace gradmeter::compression::detail {

/// |q| = min(floor(s·|x|/N + u), s) for one number. s·|x|/N and u are held as integers in units of 2^-24: for s up to
/// 127 their sum stays below 2^31, and its floor is a shift. `cap` is s in these units; `c` is factors_to(cap, N).
GRADMETER_HOST_DEVICE inline std::uint32_t level_of(Coefficients c, float cap, float x, std::uint32_t draw) {
  return (static_cast<std::uint32_t>(core::lesser_number(std::fabs(x) * c.first * c.second, cap)) + draw) >> 24;
}

/// QSGD's arithmetic for one number, with s = 2^(b-1) - 1 levels for each sign.
template <std::size_t code_bits, Rounding rounding>
struct QsgdRule {
  static constexpr std::size_t bits = code_bits;
  static constexpr bool random = rounding == Rounding::stochastic;
  static constexpr std::uint32_t levels = (1u << (bits - 1)) - 1;
  using Scale = float;
  GRADMETER_HOST_DEVICE static float scale(float norm) { return norm; }

  static constexpr float top = static_cast<float>(levels) * 0x1p24f;
  GRADMETER_HOST_DEVICE static Coefficients encoder(float norm) { return factors_to(top, norm); }
  GRADMETER_HOST_DEVICE static std::uint32_t code(Coefficients c, float x, std::uint32_t draw) {
    const std::uint32_t q = level_of(c, top, x, draw);
    return (std::signbit(x) ? 0 - q : q) & ((1u << bits) - 1);
  }

  /// q/s is computed first, because N·q could exceed the largest float, and N/s could become zero.
  static constexpr float inverse = 1.0f / static_cast<float>(levels);
  GRADMETER_HOST_DEVICE static Coefficients decoder(float norm) { return {inverse, norm}; }
  GRADMETER_HOST_DEVICE static float value(Coefficients c, std::uint32_t code) {
    const auto q = core::bits_as<std::int32_t>(code << (32 - bits)) >> (32 - bits);
    return static_cast<float>(q) * c.first * c.second;
  }
};

/// The code is one random bit: +N with probability (1 + x/N)/2, else -N.
struct Qsgd1Rule {
  static constexpr std::size_t bits = 1;
  static constexpr bool random = true;
  using Scale = float;
  GRADMETER_HOST_DEVICE static float scale(float norm) { return norm; }

  GRADMETER_HOST_DEVICE static Coefficients encoder(float norm) { return factors_to(0x1p23f, norm); }
  /// The probability is held as an integer from 0 to 2^24, in units of 2^-24; rounding may take it slightly out of this
  /// range.
  GRADMETER_HOST_DEVICE static std::uint32_t code(Coefficients c, float x, std::uint32_t draw) {
    const auto chance = static_cast<std::int32_t>(x * c.first * c.second + 0x1p23f);
    return static_cast<std::int32_t>(draw) < chance ? 1 : 0;
  }

  /// The negative is computed as 0 - N, which is +0 in a bucket of zeros, where -N would be -0.
  GRADMETER_HOST_DEVICE static Coefficients decoder(float norm) { return {norm, 0.0f - norm}; }
  GRADMETER_HOST_DEVICE static float value(Coefficients c, std::uint32_t code) { return code ? c.first : c.second; }
};

// TernGrad in plain loops, which are the reference.

using TernaryRule = QsgdRule<2, Rounding::stochastic>;

/// A span is one bucket of any length.
inline constexpr WireLayout ternary_layout{.bucket = std::size_t{1} << 62, .bits = TernaryRule::bits};

/// The scale M of n elements. `most`: the largest |x|, NaN when not all are finite. `squares`: the sum of squares.
GRADMETER_HOST_DEVICE inline float clipped_scale(float most, double squares, std::size_t n, double clip) {
  if (clip == 0 || !(most > 0)) return most;
  const double sigma = std::sqrt(squares / static_cast<double>(n));
  // For a few tiny numbers among zeros sigma may be rounded to zero. The limit is then the smallest float, not zero.
  constexpr double smallest = core::smallest_positive_float;
  const double limit = core::greater(clip * sigma, smallest);
  return limit < double{most} ? static_cast<float>(limit) : most;
}

inline float ternary_scale_plain(std::span<const float> x, double clip) {
  return clipped_scale(max_norm(x), sum_of_squares(x), x.size(), clip);
}

/// `codes` must be zero before the call.
inline void ternary_encode_plain(std::span<const float> x, float scale, const Draws& draws, std::byte* codes) {
  if (scale > 0) encode_plain_codes<TernaryRule>(TernaryRule::encoder(scale), x, draws, 0, codes);
}

/// The code of one element, as a number.
GRADMETER_HOST_DEVICE inline std::int8_t ternary_code(Coefficients encoder, float x, std::uint32_t draw) {
  const std::uint32_t code = TernaryRule::code(encoder, x, draw);
  return static_cast<std::int8_t>(code == 3 ? -1 : static_cast<int>(code));
}

}  // namespace gradmeter::compression::detail
