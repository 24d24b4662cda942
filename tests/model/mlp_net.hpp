// SPDX-License-Identifier: Apache-2.0
// A multilayer perceptron with its buffers, and random data for it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/random.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "support/mlp.hpp"

namespace gradmeter::model {

using Floats = kernels::AlignedVector<float>;
using Widths = std::vector<std::size_t>;

struct Data {
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
  Batch batch() const { return {inputs, labels}; }
  Batch part(std::size_t first, std::size_t count) const {
    const std::size_t features = inputs.size() / labels.size();
    return {std::span(inputs).subspan(first * features, count * features), std::span(labels).subspan(first, count)};
  }
};

inline Data random_data(std::size_t samples, std::size_t features, std::size_t classes, std::uint64_t seed = 9) {
  const core::Random random(seed, 0);
  Data data{std::vector<float>(samples * features), std::vector<std::int32_t>(samples)};
  for (std::size_t i = 0; i < data.inputs.size(); ++i) data.inputs[i] = static_cast<float>(random.gaussian(i));
  for (std::size_t i = 0; i < samples; ++i) data.labels[i] = static_cast<std::int32_t>(random.below(i, classes));
  return data;
}

/// A model with its two buffers, biases not zero so that they count.
struct Net {
  explicit Net(const Widths& widths, std::uint64_t seed = 1)
      : mlp(widths), parameters(mlp.element_count()), gradients(mlp.element_count()) {
    kernels::set_compute_threads(1);
    mlp.initialise(queue, buffers(), seed);
    const core::Random random(seed, 1000);
    for (const Tensor& t : mlp.tensors())
      if (t.shape.size() == 1)
        for (std::size_t i = 0; i < t.count; ++i)
          parameters[t.offset + i] = static_cast<float>(0.1 * random.gaussian(t.offset + i));
  }
  Buffers buffers() { return {parameters, gradients}; }
  Outcome step(const Batch& batch) {
    return mlp.pass(queue, buffers(), batch, [](std::size_t) {}).get();
  }
  Mlp mlp;
  Floats parameters, gradients;
  runtime::HostQueue queue;
};

}  // namespace gradmeter::model
