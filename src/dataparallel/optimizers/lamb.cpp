#include "dataparallel/optimizers/lamb.hpp"

#include "dataparallel/optimizers/tensor_norms.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::dataparallel {
namespace {

class Lamb final : public NormOptimizer {
 public:
  /// p.step: set by each update.
  Lamb(std::string name, const OptimizerScope& scope, kernels::LambParameters p)
      : NormOptimizer(std::move(name), scope), parameters_(p), mean_(scope.state()), square_(scope.state()) {}

  std::vector<runtime::Buffer> state() override { return {mean_.buffer, square_.buffer}; }
  runtime::Cost cost(std::size_t n) const override { return {28.0 * double(n), 40.0 * double(n)}; }
  runtime::Cost measure_cost(std::size_t n) const override { return {20.0 * double(n), 24.0 * double(n)}; }

 private:
  void take_norms(const Range& r, runtime::Buffer sums, UpdateStep step) override {
    kernels::loops().lamb_norms(r.w, r.of(mean_), r.of(square_), r.g, r.pieces, sums, with(step), step.which());
  }
  void move(const Range& r, runtime::ConstBuffer sums, UpdateStep step) override {
    kernels::loops().lamb(r.w, r.of(mean_), r.of(square_), r.pieces, sums, with(step), step.which());
  }
  kernels::LambParameters with(UpdateStep step) const {
    kernels::LambParameters p = parameters_;
    p.step = step.size;
    return p;
  }

  kernels::LambParameters parameters_;
  runtime::OwnedBuffer mean_, square_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(const core::ParsedName& name, const OptimizerScope& scope) {
  const kernels::LambParameters p{.step = 0,
                                  .beta1 = optimizer_parameter(name, "beta1", 0, 1),
                                  .beta2 = optimizer_parameter(name, "beta2", 0, 1),
                                  .epsilon = optimizer_parameter(name, "epsilon", 0, 1),
                                  .decay = optimizer_parameter(name, "decay", 0, 1)};
  return std::make_unique<Lamb>(name.canonical(), scope, p);
}

}  // namespace gradmeter::dataparallel
