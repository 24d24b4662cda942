#include "dataparallel/optimizers/outer.hpp"

#include "core/format.hpp"
#include "kernels/pointwise.hpp"

namespace gradmeter::dataparallel {
namespace {

class Outer final : public Optimizer {
 public:
  Outer(const OptimizerScope& scope, OuterMomentum o)
      : Optimizer(fmt::format("outer:mu={},nesterov={:d},step={}", o.mu, o.nesterov, o.step)),
        parameters_{.step = -o.step, .mu = o.mu, .nesterov = o.nesterov},
        velocity_(scope.state()) {}
  void apply(runtime::Buffer w, runtime::ConstBuffer change, std::size_t offset, UpdateStep) override {
    // A change is added where a gradient is subtracted: hence the step below zero.
    kernels::momentum(w.values<float>(), velocity_.buffer.part(offset, w.count()).values<float>(),
                      change.values<float>(), parameters_);
  }
  runtime::Cost cost(std::size_t n) const override { return {4.0 * double(n), 20.0 * double(n)}; }

 private:
  kernels::MomentumParameters parameters_;
  runtime::OwnedBuffer velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_outer_momentum(const OptimizerScope& scope, OuterMomentum o) {
  return std::make_unique<Outer>(scope, o);
}

}  // namespace gradmeter::dataparallel
