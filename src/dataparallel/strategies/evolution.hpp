// SPDX-License-Identifier: Apache-2.0
// Search without gradients: models perturbed by noise are compared by their losses. Any rank can draw the noise again,
// so noise is never sent.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataparallel/strategy.hpp"
#include "model/model.hpp"

namespace gradmeter::dataparallel {

/// The key of a noise: that of member `member` (a pair, or a slot of a population) in step `step`.
struct NoiseName {
  std::uint64_t seed = 0, step = 0;
  std::uint32_t member = 0;
};

/// values[i] += scale·ε[first + i], where each ε is +1 or -1 with equal probability (Rademacher). The estimates here
/// need only mean 0 and E[εεᵀ] = I, so signs serve as well as normal numbers. Their fourth moment is the smallest
/// possible: the estimate of a gradient has the variance (d - 1)/n instead of (d + 1)/n. One Philox block makes 128
/// signs, while twelve blocks make a single `core::Random::gaussian`. The signs are the same on every machine.
/// Cost: 8 bytes and about one addition an element.
void add_signs(std::span<float> values, NoiseName, float scale, std::size_t first = 0);

/// A run of elements of a flat buffer, and the number of the noise at which it begins.
struct NoiseRun {
  std::size_t at, count, first;
};
/// The runs of these tensors' elements. Noise is numbered by an element's place in the whole model, so that a part gets
/// the same noise as in the whole. A run has at most `longest` elements. Gaps between tensors have no noise.
std::vector<NoiseRun> noise_runs(std::span<const model::Tensor>, std::size_t longest);
/// Adds signs to the elements of the runs. Short neighbouring runs share draws.
void add_signs(std::span<float> values, std::span<const NoiseRun>, NoiseName, float scale);

}  // namespace gradmeter::dataparallel
