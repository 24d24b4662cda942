// Noise that any rank can draw again: what evolution strategies send instead of vectors is the knowledge of it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradmeter::dataparallel {

/// Which noise: of member `member` (a pair, a slot of a population) in step `step`.
struct NoiseName {
  std::uint64_t seed = 0, step = 0;
  std::uint32_t member = 0;
};

/// Where a span of a long noise begins [elements]; a multiple of this.
inline constexpr std::size_t noise_grain = 128;

/// values[i] += scale·ε[first + i], where ε are fair signs, +1 or -1 (Rademacher).
/// Signs and not normal numbers: mean 0 and E[εεᵀ] = I are all that the estimates here ask of ε; their fourth moment is
/// the smallest there is, so that the estimate of a gradient has the variance (d - 1)/n instead of (d + 1)/n; and one
/// Philox block makes 128 of them where twelve make a single `core::Random::gaussian`. The same on every machine.
/// Cost: 8 bytes and about one addition an element.
/// Errors: std::logic_error when first is no multiple of noise_grain.
void add_signs(std::span<float> values, NoiseName, float scale, std::size_t first = 0);

}  // namespace gradmeter::dataparallel
