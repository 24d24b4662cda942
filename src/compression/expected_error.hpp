// SPDX-License-Identifier: Apache-2.0
// The error of a decoded gradient: the measured one, and the one that the codec's rule predicts.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "core/name.hpp"

namespace gradmeter::compression {

/// Σ x², in double. Cost: one pass.
double squared_norm(std::span<const float> x);
/// Σ (decoded - exact)², in double. Shape: both [n].
double squared_error(std::span<const float> decoded, std::span<const float> exact);

/// The predicted error of one encoding of x, ‖decoded - x‖², for this x, to compare with the measured one.
struct ExpectedError {
  double mean = 0;       ///< mean over the codec's own draws; where `is_bound`, an upper bound
  double deviation = 0;  ///< standard deviation over the draws; 0 where nothing is drawn
  bool is_bound = false;
};

/// Predicts the error of a codec, given by its canonical name with every parameter written out. Empty where no identity
/// is known, and where x is not finite.
/// Stochastic codecs round each element without bias to one of its two neighbours lo <= x <= hi: its error has mean (x
/// - lo)(hi - x) and variance (x - lo)(hi - x)(lo + hi - 2x)². With rounding=nearest it is the squared distance to the
/// nearer one. For other codecs it follows from an identity of their rule; for casts from the largest rounding error of
/// their format. Cost: a pass over x in double; for top-k x is sorted too. Source: Alistarh et al., NIPS 2017 (QSGD);
/// Wen et al., NIPS 2017 (TernGrad); Horváth et al., 2019 (natural); Karimireddy et al., ICML 2019 (sign).
std::optional<ExpectedError> expected_error(const core::ParsedName& codec, std::span<const float> x);

/// What of x arrives at the decoder, apart from an error that is drawn or within the format's rounding.
enum class Arrives : std::uint8_t {
  all,        ///< x itself: on average over the draws, or rounded to the nearest number of a format
  encoded,    ///< the value that an encoding of x decodes to, always the same, since nothing is drawn
  chosen,     ///< x at places that all ranks choose alike, times a factor; 0 elsewhere
  projected,  ///< the projection of the ranks' sum onto a space of few dimensions
};
/// `codec`: the canonical name, with every parameter written out.
Arrives arrives(const core::ParsedName& codec);

/// True where the mean error measured over `draws` encodings agrees with the prediction. Six standard deviations and
/// 0.1 % are allowed, since draws have few bits and sums are in fp32.
bool agrees(const ExpectedError&, double measured, std::size_t draws);

}  // namespace gradmeter::compression
