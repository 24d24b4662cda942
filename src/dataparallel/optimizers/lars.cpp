#include "dataparallel/optimizers/lars.hpp"

#include "dataparallel/optimizers/tensor_norms.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::dataparallel {
namespace {

class Lars final : public NormOptimizer {
 public:
  /// p.step: set by each update.
  Lars(std::string name, const OptimizerScope& scope, kernels::LarsParameters p)
      : NormOptimizer(std::move(name), scope), parameters_(p), velocity_(scope.state()) {}

  std::vector<runtime::Buffer> state() override { return {velocity_.buffer}; }
  runtime::Cost cost(std::size_t n) const override { return {10.0 * double(n), 28.0 * double(n)}; }
  runtime::Cost measure_cost(std::size_t n) const override { return {4.0 * double(n), 8.0 * double(n)}; }

 private:
  void take_norms(const Range& r, runtime::Buffer sums, UpdateStep) override {
    kernels::loops().lars_norms(r.w, r.g, r.pieces, sums);
  }
  void move(const Range& r, runtime::ConstBuffer sums, UpdateStep step) override {
    kernels::LarsParameters p = parameters_;
    p.step = step.size;
    kernels::loops().lars(r.w, r.of(velocity_), r.g, r.pieces, sums, p, step.which());
  }

  kernels::LarsParameters parameters_;
  runtime::OwnedBuffer velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const core::ParsedName& name, const OptimizerScope& scope) {
  const kernels::LarsParameters p{.step = 0,
                                  .mu = optimizer_parameter(name, "mu", 0, 1),
                                  .eta = optimizer_parameter(name, "eta", 0, 1000),
                                  .decay = optimizer_parameter(name, "decay", 0, 1)};
  return std::make_unique<Lars>(name.canonical(), scope, p);
}

}  // namespace gradmeter::dataparallel
