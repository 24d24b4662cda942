#include "bench/codecs/plan.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include "bench/codecs/steps.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/units.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;

core::Factors factors_of(const CodecFactors& f, const CodecPoint& p) {
  core::Factors out;
  out[Factor::codec] = p.codec->name;
  out[Factor::size_bytes] = static_cast<std::int64_t>(p.size_bytes);
  out[Factor::distribution] = p.distribution->name();
  out[Factor::dtype] = std::string("fp32");
  out[Factor::threads] = std::int64_t{1};
  out[Factor::device] = f.device;
  out[Factor::problem] = fmt::format("parts={},ranks={},baseline={}", f.parts, f.ranks, name(f.baseline));
  return out;
}

void check_size(std::size_t bytes) {
  if (bytes > 0 && bytes % sizeof(float) == 0) return;
  throw core::UsageError(fmt::format("--size {}: must be a positive multiple of 4, the bytes of an fp32", bytes));
}

}  // namespace

std::string_view name(WireBaseline b) { return b == WireBaseline::bf16 ? "bf16" : "fp32"; }
double wire_bits(WireBaseline b) { return b == WireBaseline::bf16 ? 16 : 32; }

std::vector<CodecPoint> plan_codecs(const CodecFactors& f) {
  std::vector<CodecPoint> out;
  std::set<std::string> known;
  for (const std::size_t size : f.sizes) {
    check_size(size);
    for (const auto& distribution : f.distributions) {
      for (const auto& codec : f.codecs) {
        CodecPoint p{codec, distribution, size, {}, {}};
        p.factors = factors_of(f, p);
        if (!codec->codec) {
          p.unsupported = codec_steps_refusal(*codec, p.elements(), static_cast<std::size_t>(f.ranks));
        }
        if (known.insert(p.factors.key()).second) out.push_back(std::move(p));
      }
    }
  }
  return out;
}

std::vector<std::size_t> usual_codec_sizes(std::size_t last_cache_bytes) {
  constexpr std::size_t cached = std::size_t{256} << 10, beyond = std::size_t{64} << 20, most = std::size_t{512} << 20;
  return {cached, std::clamp(std::bit_ceil(2 * last_cache_bytes), beyond, most)};
}

std::size_t codec_memory(const CodecPoint& p, std::size_t parts) {
  // A codec of whole tensors adds up in memory of its own; one with steps keeps up to two gradients and makes a third.
  const std::size_t wire = p.codec->codec ? p.codec->codec->wire_bytes(p.elements()) : p.size_bytes;
  return (p.codec->codec ? 3 : 5) * p.size_bytes + (parts + 1) * wire;
}

}  // namespace gradmeter::bench
