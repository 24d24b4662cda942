#include "dataparallel/optimizers/adam.hpp"

#include "kernels/loops.hpp"

namespace gradmeter::dataparallel {
namespace {

class Adam final : public Optimizer {
 public:
  Adam(std::string name, const OptimizerScope& scope, kernels::AdamParameters p, float decay)
      : Optimizer(std::move(name)), parameters_(p), decay_(decay), mean_(scope.state()), square_(scope.state()) {}

  void apply(runtime::Buffer w, runtime::ConstBuffer g, std::size_t offset, UpdateStep step) override {
    kernels::AdamParameters p = parameters_;
    p.step = step.size;
    const auto of = [&](const runtime::OwnedBuffer& state) { return state.buffer.part(offset, w.count()); };
    kernels::loops().adam_step(w, of(mean_), of(square_), g, p, decay_ > 0 ? 1 - step.size * decay_ : 1, step.which());
  }

  std::vector<runtime::Buffer> state() override { return {mean_.buffer, square_.buffer}; }
  runtime::Cost cost(std::size_t n) const override {
    const bool decays = decay_ > 0;
    return {(decays ? 13.0 : 12.0) * double(n), (decays ? 36.0 : 28.0) * double(n)};
  }

 private:
  kernels::AdamParameters parameters_;
  float decay_;
  runtime::OwnedBuffer mean_, square_;
};

std::unique_ptr<Optimizer> with_decay(const core::ParsedName& name, const OptimizerScope& scope, float decay) {
  const kernels::AdamParameters p{.beta1 = optimizer_parameter(name, "beta1", 0, 1),
                                  .beta2 = optimizer_parameter(name, "beta2", 0, 1),
                                  .epsilon = optimizer_parameter(name, "epsilon", 0, 1)};
  return std::make_unique<Adam>(name.canonical(), scope, p, decay);
}

}  // namespace

std::unique_ptr<Optimizer> make_adam(const core::ParsedName& name, const OptimizerScope& s) {
  return with_decay(name, s, 0);
}
std::unique_ptr<Optimizer> make_adamw(const core::ParsedName& name, const OptimizerScope& s) {
  return with_decay(name, s, optimizer_parameter(name, "decay", 0, 1));
}

}  // namespace gradmeter::dataparallel
