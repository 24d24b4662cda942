#include "dataparallel/optimizers/lamb.hpp"

#include <cmath>

#include "dataparallel/optimizers/tensor_norms.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t grain = 1 << 16;  // elements for each thread at least, as in kernels/pointwise

struct Parameters {
  float beta1, beta2, epsilon, decay;
};

/// One tensor's arrays, and what its direction is made of.
struct Tensor {
  float *w, *m, *v;
  const float* g;
  std::size_t count;
  float of_mean, of_square;  ///< 1/(1 − beta^t)

  float direction(std::size_t i, const Parameters& p) const {
    return m[i] * of_mean / (std::sqrt(v[i] * of_square) + p.epsilon) + p.decay * w[i];
  }
};

/// Moves the averages on. Returns Σ w² and Σ r².
TwoSums average(const Tensor& t, const Parameters& p) {
  return sum_blocks(t.count, [=](std::size_t first, std::size_t count) {
    float* __restrict m = t.m, * __restrict v = t.v;
    const float* __restrict g = t.g;
    for (std::size_t i = first; i < first + count; ++i) {
      m[i] = p.beta1 * m[i] + (1 - p.beta1) * g[i];
      v[i] = p.beta2 * v[i] + (1 - p.beta2) * (g[i] * g[i]);
    }
    return squares(
        first, count, [&](std::size_t i) { return t.w[i]; }, [&](std::size_t i) { return t.direction(i, p); });
  });
}

class Lamb final : public NormOptimizer {
 public:
  Lamb(std::string name, const OptimizerScope& scope, Parameters p)
      : NormOptimizer(std::move(name), scope), parameters_(p), mean_(scope.state()), square_(scope.state()) {}

  std::vector<runtime::Buffer> state() override { return {mean_.buffer, square_.buffer}; }
  runtime::Cost cost(std::size_t n) const override { return {28.0 * double(n), 40.0 * double(n)}; }
  runtime::Cost measure_cost(std::size_t n) const override { return {20.0 * double(n), 24.0 * double(n)}; }

 private:
  TwoSums squares_of(const Piece& piece, UpdateStep step) override { return average(tensor(piece, step), parameters_); }

  void move(const Piece& piece, TwoSums sums, UpdateStep step) override {
    const Parameters p = parameters_;
    const Tensor t = tensor(piece, step);
    const bool both = sums.first > 0 && sums.second > 0;
    const auto rate = static_cast<float>(double{step.size} * (both ? std::sqrt(sums.first / sums.second) : 1.0));
    kernels::split(t.count, grain, [=](std::size_t first, std::size_t count) {
      float* __restrict w = t.w;
      for (std::size_t i = first; i < first + count; ++i) w[i] -= rate * t.direction(i, p);
    });
  }

  Tensor tensor(const Piece& piece, UpdateStep step) {
    const auto correction = [&](float beta) {
      return static_cast<float>(1 / (1 - std::pow(double{beta}, static_cast<double>(step.number))));
    };
    return {.w = piece.w,
            .m = mean_.buffer.values<float>().data() + piece.offset,
            .v = square_.buffer.values<float>().data() + piece.offset,
            .g = piece.g,
            .count = piece.count,
            .of_mean = correction(parameters_.beta1),
            .of_square = correction(parameters_.beta2)};
  }

  Parameters parameters_;
  runtime::OwnedBuffer mean_, square_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(const core::ParsedName& name, const OptimizerScope& scope) {
  const Parameters p{.beta1 = optimizer_parameter(name, "beta1", 0, 1),
                     .beta2 = optimizer_parameter(name, "beta2", 0, 1),
                     .epsilon = optimizer_parameter(name, "epsilon", 0, 1),
                     .decay = optimizer_parameter(name, "decay", 0, 1)};
  return std::make_unique<Lamb>(name.canonical(), scope, p);
}

}  // namespace gradmeter::dataparallel
