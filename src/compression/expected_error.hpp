// SPDX-License-Identifier: Apache-2.0
// The error of a decoded gradient: as measured, and as predicted from the codec's rule.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "core/name.hpp"

namespace gradmeter::compression {

/// Σ x², in double. Cost: one pass.
double squared_norm(std::span<const float> x);
/// Σ (decoded - exact)², in double. Both spans have the same length.
double squared_error(std::span<const float> decoded, std::span<const float> exact);

/// The squared error ‖decoded - x‖² that one encoding of a given x should have.
struct ExpectedError {
  double mean = 0;       ///< mean over the codec's random draws; if `is_bound`, an upper bound of the error
  double deviation = 0;  ///< standard deviation over the draws; 0 if nothing is drawn
  bool is_bound = false;
  /// The most by which the squared error may differ from the prediction because the codec computes in fp32 and the
  /// prediction in double.
  double arithmetic = 0;
};

/// Predicts the error of a codec, given by its canonical name with every parameter written out. Empty if there is no
/// formula for this codec, if an element of x is not finite, or if a cast rounds one to infinity.
/// A stochastic codec rounds each element x without bias to one of its two neighbours lo <= x <= hi. The element's
/// squared error has the mean (x - lo)(hi - x) and the variance (x - lo)(hi - x)(lo + hi - 2x)². With rounding=nearest,
/// the squared error is the squared distance to the nearer neighbour. For casts and fp8 the largest rounding error of
/// the format gives an upper bound. The errors of other codecs, and of terngrad's clipping, follow from their rules.
/// Cost: O(n), in double. Source: Alistarh et al., NIPS 2017 (QSGD); Wen et al., NIPS 2017 (TernGrad); Horváth et al.,
/// 2019 (natural); Karimireddy et al., ICML 2019 (sign).
std::optional<ExpectedError> expected_error(const core::ParsedName& codec, std::span<const float> x);

/// The value that a receiver gets for an encoded x, apart from the errors of random rounding and of rounding to a
/// number format.
enum class ReceivedValue : std::uint8_t {
  all,        ///< x itself
  encoded,    ///< a value that differs from x, but is the same for each encoding of x, since nothing is drawn
  chosen,     ///< x times a factor, at elements that all ranks choose alike; 0 elsewhere
  projected,  ///< the projection of the ranks' sum onto a space of few dimensions
};
/// `codec`: the canonical name, with every parameter written out.
ReceivedValue received_value(const core::ParsedName& codec);

/// True if `measured`, the mean squared error of `draws` encodings, agrees with the prediction. `measured` may exceed a
/// bound by d, or differ from a predicted mean by d plus six standard deviations of the mean of `draws` errors. Here d
/// is `arithmetic` plus 0.1 % of the prediction, because random draws have few bits and sums are in fp32.
bool matches_prediction(const ExpectedError&, double measured, std::size_t draws);

}  // namespace gradmeter::compression
