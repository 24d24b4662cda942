// From factors to the points of a codec sweep.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compression/gradients.hpp"
#include "compression/registry.hpp"
#include "core/result.hpp"

namespace gradmeter::bench {

using TestGradientPtr = std::shared_ptr<const compression::TestGradient>;

/// The dense exchange that a codec is held against. Against bf16, which costs next to nothing, bf16 itself saves
/// nothing.
enum class WireBaseline : std::uint8_t { bf16, fp32 };
std::string_view name(WireBaseline);
double wire_bits(WireBaseline);

struct CodecFactors {
  std::vector<compression::CodecChoicePtr> codecs;  ///< none of them null
  std::vector<std::size_t> sizes;                   ///< bytes of fp32
  std::vector<TestGradientPtr> distributions;
  std::size_t parts = 4;  ///< encoded gradients that are added up and encoded again
  int ranks = 8;          ///< of the exchange for which the crossover is computed
  WireBaseline baseline = WireBaseline::fp32;
  std::string device = "cpu";  ///< that codes
};

struct CodecPoint {
  compression::CodecChoicePtr codec;
  TestGradientPtr distribution;
  std::size_t size_bytes = 0;
  std::string unsupported;  ///< why it cannot be measured; empty: it can
  core::Factors factors;
  std::size_t elements() const { return size_bytes / sizeof(float); }
};

/// By size, distribution, codec, in the order given; each once.
/// Errors: UsageError for a size that is not a positive multiple of 4.
std::vector<CodecPoint> plan_codecs(const CodecFactors&);

/// Two sizes: one that fits into the caches with all its buffers, and one that no cache holds.
std::vector<std::size_t> usual_codec_sizes(std::size_t last_cache_bytes);

/// Memory that a point needs at once: two gradients, the encoded parts and their sum [bytes].
std::size_t codec_memory(const CodecPoint&, std::size_t parts);

}  // namespace gradmeter::bench
