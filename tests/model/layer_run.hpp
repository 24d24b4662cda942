// SPDX-License-Identifier: Apache-2.0
// A layer's two passes on random data.
#pragma once
#include <cstdint>
#include <vector>

#include "core/random.hpp"
#include "model/layers/layer.hpp"

namespace gradmeter::model {

inline std::vector<float> drawn(std::size_t n, std::uint64_t seed, double scale = 1) {
  const core::Random random(seed, 0x6c61);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(scale * random.gaussian(i));
  return x;
}

struct LayerRun {
  std::vector<std::vector<float>> parameters, gradients;
  std::vector<float> input, output, output_gradient, input_gradient;
  std::vector<std::size_t> ready;

  LayerRun(const Layer& layer, std::size_t samples, bool wants_input_gradient = true)
      : input(drawn(samples * elements(layer.input()), 1)),
        output(samples * elements(layer.output())),
        output_gradient(drawn(output.size(), 2)),
        input_gradient(wants_input_gradient ? input.size() : 0) {
    runtime::HostQueue queue;
    for (const LayerTensor& t : layer.tensors()) {
      parameters.push_back(drawn(elements(t), 10 + parameters.size(), 0.3));
      gradients.emplace_back(elements(t), 1e9F);  // what is there is to be overwritten
    }
    const std::vector<runtime::ConstBuffer> parameter_list(parameters.begin(), parameters.end());
    const std::vector<runtime::Buffer> gradient_list(gradients.begin(), gradients.end());
    const auto prepared = layer.prepare(samples, wants_input_gradient, queue.device());
    // A second time, as the next step of a training: nothing may be left of the first.
    for (int pass = 0; pass < 2; ++pass) {
      auto used = output_gradient;
      prepared->forward({queue, parameter_list, input, output});
      prepared->backward({queue, parameter_list, input, output, used, input_gradient, gradient_list,
                          [&](std::size_t t) { ready.push_back(t); }});
    }
  }
};

}  // namespace gradmeter::model
