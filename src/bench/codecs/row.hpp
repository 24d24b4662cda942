// Turns what was measured of a codec into a row: times, wire bits, error and its expected value, the crossover.
#pragma once
#include <optional>
#include <span>

#include "bench/codecs/plan.hpp"
#include "bench/engine/noise_sampler.hpp"
#include "compression/identities.hpp"
#include "core/statistics.hpp"

namespace gradmeter::bench {

/// What is timed of a codec, in turn.
enum class CodecCall : std::uint8_t { copy, add, encode, decode, decode_add, reduce_encode };
inline constexpr std::size_t codec_call_count = 6;
core::Metric metric_of(CodecCall);

/// Squared errors are of one encoding, the mean over `draws`.
struct CodecError {
  double squared_error = 0, squared_norm = 0;
  std::size_t draws = 1;
  std::optional<compression::ExpectedError> expected;
  std::string fault = {};  ///< of what the timed calls compute; empty: none
};

struct CodecFindings {
  const CodecPoint& point;
  const compression::Codec& codec;  ///< the point's, or its steps
  std::size_t wire_bytes = 0;       ///< that the encoding took
  CodecError error;
  std::array<core::Summary, codec_call_count> times{};  ///< without samples: this codec lacks the call
  std::span<const double> encode_times;                 ///< kept raw
  Noise noise;
};

/// Error, wire bits, and status wrong where they are not as required: a wrong codec is not timed.
void fill_codec_check(const CodecFindings&, core::Point& row);
/// Times, and the crossover where the codec is used in scatter-reduce and all-gather.
void fill_codec_times(const CodecFindings&, const CodecFactors&, core::Point& row);

}  // namespace gradmeter::bench
