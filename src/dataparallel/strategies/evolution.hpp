// SPDX-License-Identifier: Apache-2.0
// Search without gradients: models that are perturbed by noise are compared by their losses. Any rank can compute the
// noise again from its seed, step and member (NoiseName), so noise is never sent.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataparallel/strategy.hpp"
#include "model/model.hpp"

namespace gradmeter::dataparallel {

/// Names one vector of noise: that of a member (a pair of perturbed models, or a slot of a population) in a step.
struct NoiseName {
  std::uint64_t seed = 0, step = 0;
  std::uint32_t member = 0;
};

/// values[i] += scale·ε[first + i], where each ε is +1 or -1 with equal probability (Rademacher). The estimates here
/// need only mean 0 and E[εεᵀ] = I, so signs serve as well as normal numbers. Their fourth moment is the smallest
/// possible, so with d weights and n pairs a gradient's estimate has a relative variance of (d - 1)/n; with normal
/// numbers it would be (d + 1)/n. One Philox block gives 128 signs, whereas one `core::Random::gaussian` takes twelve
/// blocks. The signs are the same on every machine. Cost: 8 bytes and about one addition an element.
void add_signs(std::span<float> values, NoiseName, float scale, std::size_t first = 0);

/// Elements [at, at + count) of a flat buffer. Element `at` gets the noise ε[first], its neighbour ε[first + 1], and so
/// on.
struct NoiseRun {
  std::size_t at, count, first;
};
/// The runs that cover the elements of these tensors, each of at most `longest` elements. An element's index in the
/// noise is its index in the whole model, so a part of a model gets the same noise as it has in the whole. Gaps between
/// tensors get no noise.
std::vector<NoiseRun> noise_runs(std::span<const model::Tensor>, std::size_t longest);
/// Adds signs to the elements of the runs. Short runs next to each other share blocks of random bits.
void add_signs(std::span<float> values, std::span<const NoiseRun>, NoiseName, float scale);

}  // namespace gradmeter::dataparallel
