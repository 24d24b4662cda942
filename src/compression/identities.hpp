// The expected error of a codec, computed from its input: to compare with the measured one.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "core/name.hpp"

namespace gradmeter::compression {

/// Of one encoding of x: ‖decoded - x‖².
struct ExpectedError {
  double mean = 0;       ///< over the codec's own draws; the bound where `is_bound`
  double deviation = 0;  ///< standard deviation over the draws; 0 where nothing is drawn
  bool is_bound = false;
};

/// `codec`: canonical, every parameter written out. Empty where no identity is known, and where x is not finite.
/// Stochastic codecs round each element to one of its two neighbours lo <= x <= hi without bias:
/// mean (x - lo)(hi - x), variance (x - lo)(hi - x)(lo + hi - 2x)². With rounding=nearest: the nearer one's distance,
/// squared. Others by the identity of their rule; casts by the largest rounding error of their format. Cost: a pass
/// over x in double; top-k besides orders it. Source: Alistarh et al., NIPS 2017 (QSGD); Wen et
/// al., NIPS 2017 (TernGrad); Horváth et al., 2019 (natural); Karimireddy et al., ICML 2019 (sign).
std::optional<ExpectedError> expected_error(const core::ParsedName& codec, std::span<const float> x);

/// What of x arrives at the decoder, apart from an error that is drawn or is within the format's rounding.
enum class Arrives : std::uint8_t {
  all,        ///< x itself: on average over the draws, or rounded to the nearest number of a format
  encoded,    ///< what any encoding of x decodes to: nothing is drawn
  chosen,     ///< x at places that all ranks choose alike, times a factor; 0 elsewhere
  projected,  ///< of a sum: its projection onto a space of few dimensions
};
/// `codec`: as above.
Arrives arrives(const core::ParsedName& codec);

/// Is the mean error measured over `draws` encodings what is expected? Six standard deviations and 0.1 % are allowed:
/// random bits are few, and sums are in fp32.
bool agrees(const ExpectedError&, double measured, std::size_t draws);

}  // namespace gradmeter::compression
