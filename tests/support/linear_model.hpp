// SPDX-License-Identifier: Apache-2.0
// A loss that is linear in the weights, the same on every batch, so that a method's result can be computed by hand.
#pragma once
#include <string>
#include <vector>

#include "core/random.hpp"
#include "model/model.hpp"

namespace gradmeter::test {

/// loss = slope · θ for each sample; the slope's numbers are drawn, of variance 1.
class LinearModel final : public model::Model {
 public:
  explicit LinearModel(std::size_t weights) : slope_(weights), tensors_{{"weights", {weights}, 0, weights}} {
    for (std::size_t i = 0; i < weights; ++i) slope_[i] = static_cast<float>(core::Random(17, 3).gaussian(i));
  }
  std::span<const float> slope() const { return slope_; }

  const std::string& name() const override { return name_; }
  std::span<const model::Tensor> tensors() const override { return tensors_; }
  std::size_t element_count() const override { return slope_.size(); }
  std::size_t input_features() const override { return 784; }
  std::size_t classes() const override { return 10; }
  double step_flops(std::size_t samples) const override { return 2.0 * double(samples * slope_.size()); }
  std::size_t workspace_bytes(std::size_t) const override { return 0; }
  void initialise(runtime::Queue& queue, model::Buffers b, std::uint64_t seed) const override {
    queue.run_and_wait([&] {
      const auto p = b.parameters.values<float>();
      for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(core::Random(seed, 1).uniform(i));
    });
  }
  void run_forward(runtime::Queue& queue, model::Buffers b, const model::Batch& batch,
                   const model::OutcomePlace& outcome) override {
    queue.submit("forward.linear", {.flops = 2.0 * double(slope_.size()), .bytes = 0}, [this, b, batch, outcome] {
      const auto p = b.parameters.values<float>();
      double loss = 0;
      for (std::size_t i = 0; i < p.size(); ++i) loss += double(slope_[i]) * double(p[i]);
      outcome->loss_sum += loss * double(batch.samples());
      outcome->labels += batch.samples();
    });
  }
  void run_pass(runtime::Queue& queue, model::Buffers b, const model::Batch& batch, const Ready& ready,
                const model::OutcomePlace& outcome) override {
    run_forward(queue, b, batch, outcome);
    queue.submit("backward.linear", {}, [this, b] { std::ranges::copy(slope_, b.gradients.values<float>().begin()); });
    ready(0);
  }

 private:
  std::string name_ = "linear";
  std::vector<float> slope_;
  std::vector<model::Tensor> tensors_;
};

}  // namespace gradmeter::test
