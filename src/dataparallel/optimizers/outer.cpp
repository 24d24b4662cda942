#include "dataparallel/optimizers/outer.hpp"

#include "core/format.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::dataparallel {
namespace {

class Outer final : public Optimizer {
 public:
  Outer(const OptimizerScope& scope, OuterMomentum o)
      : Optimizer(fmt::format("outer:mu={},nesterov={:d},step={}", o.mu, o.nesterov, o.step)),
        momentum_(o),
        velocity_(scope.state()) {}
  void apply(runtime::Buffer w, runtime::ConstBuffer change, std::size_t offset, UpdateStep step) override {
    if (momentum_.follows_step_size && step.number != last_.number) {
      growth_ = last_.size > 0 ? step.size / last_.size : 1;
      last_ = step;
    }
    // A change is added where a gradient is subtracted: hence the step below zero.
    kernels::loops().momentum(w, velocity_.buffer.part(offset, w.count()), change,
                              {-momentum_.step, growth_ * momentum_.mu, momentum_.nesterov}, step.which());
  }
  runtime::Cost cost(std::size_t n) const override { return {4.0 * double(n), 20.0 * double(n)}; }

 private:
  OuterMomentum momentum_;
  UpdateStep last_{.size = 0, .number = 0};
  float growth_ = 1;  ///< of the step size since the last update
  runtime::OwnedBuffer velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_outer_momentum(const OptimizerScope& scope, OuterMomentum o) {
  return std::make_unique<Outer>(scope, o);
}

}  // namespace gradmeter::dataparallel
