#include "dataparallel/optimizers/lars.hpp"

#include <cmath>

#include "dataparallel/optimizers/tensor_norms.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t grain = 1 << 16;  // elements for each thread at least, as in kernels/pointwise

class Lars final : public NormOptimizer {
 public:
  struct Parameters {
    float mu, eta, decay;
  };
  Lars(std::string name, const OptimizerScope& scope, Parameters p)
      : NormOptimizer(std::move(name), scope), parameters_(p), velocity_(scope.state()) {}

  std::vector<runtime::Buffer> state() override { return {velocity_.buffer}; }
  runtime::Cost cost(std::size_t n) const override { return {10.0 * double(n), 28.0 * double(n)}; }
  runtime::Cost measure_cost(std::size_t n) const override { return {4.0 * double(n), 8.0 * double(n)}; }

 private:
  TwoSums squares_of(const Piece& piece, UpdateStep) override {
    const float *w = piece.w, *g = piece.g;
    return sum_blocks(piece.count, [=](std::size_t first, std::size_t count) {
      return squares(
          first, count, [=](std::size_t i) { return w[i]; }, [=](std::size_t i) { return g[i]; });
    });
  }

  void move(const Piece& piece, TwoSums sums, UpdateStep step) override {
    const Parameters p = parameters_;
    const double size = std::sqrt(sums.first), slope = std::sqrt(sums.second);
    const double trust = size > 0 && slope > 0 ? double{p.eta} * size / (slope + double{p.decay} * size) : 1.0;
    const auto rate = static_cast<float>(double{step.size} * trust);
    float *w = piece.w, *v = velocity_.buffer.values<float>().data() + piece.offset;
    const float* g = piece.g;
    kernels::split(piece.count, grain, [=](std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) {
        v[i] = p.mu * v[i] + rate * (g[i] + p.decay * w[i]);
        w[i] -= v[i];
      }
    });
  }

  Parameters parameters_;
  runtime::OwnedBuffer velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const core::ParsedName& name, const OptimizerScope& scope) {
  const Lars::Parameters p{.mu = optimizer_parameter(name, "mu", 0, 1),
                           .eta = optimizer_parameter(name, "eta", 0, 1000),
                           .decay = optimizer_parameter(name, "decay", 0, 1)};
  return std::make_unique<Lars>(name.canonical(), scope, p);
}

}  // namespace gradmeter::dataparallel
