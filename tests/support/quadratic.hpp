// SPDX-License-Identifier: Apache-2.0
// The smallest model that can be trained: Σ ½h·(x - target)², whose gradient is known by hand.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "model/model.hpp"

namespace gradmeter::test {

/// Inputs are targets, [samples × elements]; the gradient is h (x - their mean). A few tensors of different lengths, of
/// which the first is ready first. curvatures: element i's h is the i-th of them, in turn. flops: what a pass costs.
class Quadratic final : public model::Model {
 public:
  explicit Quadratic(std::size_t elements, std::vector<float> curvatures = {1}, double flops = 1e6)
      : elements_(elements), curvatures_(std::move(curvatures)), flops_(flops), name_("quadratic") {
    const std::size_t third = elements / 3;
    add("c", 0, third);
    add("b", third, third / 2);
    add("a", third + third / 2, elements - third - third / 2);
  }
  const std::string& name() const override { return name_; }
  std::span<const model::Tensor> tensors() const override { return tensors_; }
  std::size_t element_count() const override { return elements_; }
  std::size_t input_features() const override { return elements_; }
  std::size_t classes() const override { return 1; }
  double step_flops(std::size_t) const override { return flops_; }
  std::size_t workspace_bytes(std::size_t) const override { return 0; }
  void initialise(runtime::Queue& queue, model::Buffers b, std::uint64_t seed) const override {
    queue.run_and_wait([&] {
      std::size_t i = 0;
      for (float& x : b.parameters.values<float>()) {
        x = 1 + 0.001f * static_cast<float>(seed % 100) + 0.01f * static_cast<float>(i++ % 50);
      }
    });
  }
  void run_forward(runtime::Queue& queue, model::Buffers b, const model::Batch& batch,
                   const model::OutcomePlace& outcome) override {
    queue.submit("forward", {flops_ / 2, 0}, [this, b, batch, outcome] {
      const auto x = b.parameters.values<float>();
      const auto targets = batch.inputs.values<float>();
      outcome->labels += batch.samples();
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const double off = double(x[i % elements_]) - double(targets[i]);
        outcome->loss_sum += 0.5 * double(curvature(i % elements_)) * off * off;
      }
    });
  }
  void run_pass(runtime::Queue& queue, model::Buffers b, const model::Batch& batch, const Ready& ready,
                const model::OutcomePlace& outcome) override {
    run_forward(queue, b, batch, outcome);
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      queue.submit("backward", {flops_ / 2 / double(tensors_.size()), 0}, [this, b, batch, t] {
        const auto x = b.parameters.values<float>(), g = b.gradients.values<float>();
        const auto targets = batch.inputs.values<float>();
        for (std::size_t i = tensors_[t].offset; i < tensors_[t].offset + tensors_[t].count; ++i) {
          float mean = 0;
          for (std::size_t s = 0; s < batch.samples(); ++s) mean += targets[s * elements_ + i];
          g[i] = curvature(i) * (x[i] - mean / static_cast<float>(batch.samples()));
        }
      });
      ready(t);
    }
  }

 private:
  float curvature(std::size_t i) const { return curvatures_[i % curvatures_.size()]; }
  void add(std::string name, std::size_t offset, std::size_t count) {
    tensors_.push_back({.name = std::move(name), .shape = {count}, .offset = offset, .count = count});
  }
  std::size_t elements_;
  std::vector<float> curvatures_;
  double flops_;
  std::string name_;
  std::vector<model::Tensor> tensors_;
};

}  // namespace gradmeter::test
