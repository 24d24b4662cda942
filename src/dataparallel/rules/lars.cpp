#include "dataparallel/rules/lars.hpp"

#include <cmath>
#include <vector>

#include "dataparallel/rules/tensor_norms.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t grain = 1 << 16;  // elements for each thread at least, as in kernels/pointwise

class Lars final : public Rule {
 public:
  struct Parameters {
    float mu, eta, decay;
  };
  Lars(std::string name, const RuleScope& scope, Parameters p)
      : Rule(std::move(name)), parameters_(p), tensors_(scope), velocity_(scope.elements, 0.0f) {}

  bool needs_whole_tensors() const override { return true; }

  void apply(runtime::Buffer weights, runtime::ConstBuffer gradient, std::size_t offset, UpdateStep step) override {
    float* w = weights.values<float>().data();
    const float* g = gradient.values<float>().data();
    for (const auto& t : tensors_.in(name(), offset, weights.count())) {
      const std::size_t at = t.offset - offset;
      update(w + at, g + at, velocity_.data() + t.offset, t.count, step.size);
    }
  }

  model::Cost cost(std::size_t n) const override { return {10.0 * double(n), 28.0 * double(n)}; }

 private:
  void update(float* w, const float* g, float* v, std::size_t n, float step) const {
    const TwoSums sums = sum_blocks(n, [=](std::size_t first, std::size_t count) {
      return squares(
          first, count, [=](std::size_t i) { return w[i]; }, [=](std::size_t i) { return g[i]; });
    });
    const Parameters p = parameters_;
    const double size = std::sqrt(sums.first), slope = std::sqrt(sums.second);
    const double trust = size > 0 && slope > 0 ? double{p.eta} * size / (slope + double{p.decay} * size) : 1.0;
    const auto rate = static_cast<float>(double{step} * trust);
    kernels::split(n, grain, [=](std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) {
        v[i] = p.mu * v[i] + rate * (g[i] + p.decay * w[i]);
        w[i] -= v[i];
      }
    });
  }

  Parameters parameters_;
  TensorRanges tensors_;
  std::vector<float> velocity_;
};

}  // namespace

std::unique_ptr<Rule> make_lars(const core::ParsedName& name, const RuleScope& scope) {
  const Lars::Parameters p{.mu = rule_parameter(name, "mu", 0, 1),
                           .eta = rule_parameter(name, "eta", 0, 1000),
                           .decay = rule_parameter(name, "decay", 0, 1)};
  return std::make_unique<Lars>(name.canonical(), scope, p);
}

}  // namespace gradmeter::dataparallel
