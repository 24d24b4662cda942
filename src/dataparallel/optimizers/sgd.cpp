#include "dataparallel/optimizers/sgd.hpp"

#include "kernels/loops.hpp"

namespace gradmeter::dataparallel {
namespace {

class Sgd final : public Optimizer {
 public:
  using Optimizer::Optimizer;
  void apply(runtime::Buffer w, runtime::ConstBuffer g, std::size_t, UpdateStep step) override {
    kernels::loops().sgd(w, g, step.size, step.which());
  }
  runtime::Cost cost(std::size_t n) const override { return {2.0 * double(n), 12.0 * double(n)}; }
};

class Momentum final : public Optimizer {
 public:
  Momentum(std::string name, const OptimizerScope& scope, float mu, bool nesterov)
      : Optimizer(std::move(name)), mu_(mu), nesterov_(nesterov), velocity_(scope.state()) {}
  void apply(runtime::Buffer w, runtime::ConstBuffer g, std::size_t offset, UpdateStep step) override {
    kernels::loops().momentum(w, velocity_.buffer.part(offset, w.count()), g, {step.size, mu_, nesterov_},
                              step.which());
  }
  std::vector<runtime::Buffer> state() override { return {velocity_.buffer}; }
  runtime::Cost cost(std::size_t n) const override { return {4.0 * double(n), 20.0 * double(n)}; }

 private:
  float mu_;
  bool nesterov_;
  runtime::OwnedBuffer velocity_;
};

std::unique_ptr<Optimizer> with_velocity(const core::ParsedName& name, const OptimizerScope& scope, bool nesterov) {
  const float mu = optimizer_parameter(name, "mu", 0, 1);
  return std::make_unique<Momentum>(name.canonical(), scope, mu, nesterov);
}

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const core::ParsedName& name, const OptimizerScope&) {
  return std::make_unique<Sgd>(name.canonical());
}
std::unique_ptr<Optimizer> make_momentum(const core::ParsedName& name, const OptimizerScope& s) {
  return with_velocity(name, s, false);
}
std::unique_ptr<Optimizer> make_nesterov(const core::ParsedName& name, const OptimizerScope& s) {
  return with_velocity(name, s, true);
}

}  // namespace gradmeter::dataparallel
