// SPDX-License-Identifier: Apache-2.0
// A model in whose gradient a number overflows, as it may where a loss scale is too large.
#pragma once
#include <limits>
#include <memory>
#include <utility>

#include "model/model.hpp"

namespace gradmeter::test {

class ForwardingModel : public model::Model {
 public:
  explicit ForwardingModel(std::unique_ptr<model::Model> inner) : inner_(std::move(inner)) {}
  const std::string& name() const override { return inner_->name(); }
  std::span<const model::Tensor> tensors() const override { return inner_->tensors(); }
  std::size_t element_count() const override { return inner_->element_count(); }
  std::size_t input_features() const override { return inner_->input_features(); }
  std::size_t classes() const override { return inner_->classes(); }
  double step_flops(std::size_t n) const override { return inner_->step_flops(n); }
  std::size_t workspace_bytes(std::size_t n) const override { return inner_->workspace_bytes(n); }
  void initialise(runtime::Queue& q, model::Buffers b, std::uint64_t seed) const override {
    inner_->initialise(q, b, seed);
  }
  void run_forward(runtime::Queue& q, model::Buffers b, const model::Batch& batch,
                   const model::OutcomePlace& outcome) override {
    inner_->run_forward(q, b, batch, outcome);
  }

 protected:
  std::unique_ptr<model::Model> inner_;
};

/// Its gradient of one pass, from 0, has an infinite element; of none where that is negative.
class Overflowing final : public ForwardingModel {
 public:
  Overflowing(std::unique_ptr<model::Model> inner, int pass) : ForwardingModel(std::move(inner)), left_(pass) {}
  void run_pass(runtime::Queue& q, model::Buffers b, const model::Batch& batch, const Ready& ready,
                const model::OutcomePlace& outcome) override {
    const bool spoils = left_-- == 0;
    const auto spoilt = [&](std::size_t t) {
      if (spoils && t == 1) {
        q.submit("overflow", {}, [g = b.gradients.part(tensors()[1].offset + 3, 1)] {
          g.values<float>()[0] = std::numeric_limits<float>::infinity();
        });
      }
      ready(t);
    };
    inner_->run_pass(q, b, batch, spoilt, outcome);
  }

 private:
  int left_;
};

}  // namespace gradmeter::test
