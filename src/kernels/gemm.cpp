#include "kernels/gemm.hpp"

#include <array>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "core/format.hpp"
#include "core/name.hpp"
#include "kernels/gemm_backends.hpp"
#include "kernels/library.hpp"
#include "kernels/op.hpp"

namespace gradmeter::kernels {

namespace {

/// The operation, on host memory and at once.
class OpGemm final : public Gemm {
 public:
  explicit OpGemm(const GemmShape& s) : s_(s), op_(prepare({.shape = s})) {}

  void run(std::span<const float> a, std::span<const float> b, std::span<const float> bias,
           std::span<float> c) override {
    require_operands(s_, a, b, bias, c);
    std::vector<runtime::ConstBuffer> inputs{a, b};
    if (s_.bias) inputs.emplace_back(bias);
    op_->run(queue_, "gemm", std::move(inputs), {c});
  }
  std::string implementation() const override { return op_->implementation(); }

 private:
  GemmShape s_;
  runtime::HostQueue queue_;
  std::unique_ptr<Op> op_;
};

std::unique_ptr<Gemm> make_op_gemm(const GemmShape& s) { return std::make_unique<OpGemm>(s); }

constexpr std::array backends{
    GemmBackend{"onednn", "oneDNN matmul primitive, github.com/oneapi-src/oneDNN", &make_op_gemm},
    GemmBackend{"reference", "definition, summed in float64 and rounded once", &make_reference_gemm},
};
}  // namespace

std::span<const GemmBackend> gemm_backends() {
  static const bool has_onednn = onednn_refusal().empty();
  return std::span(backends).subspan(has_onednn ? 0 : 1);
}

std::unique_ptr<Gemm> make_gemm(const GemmShape& problem, std::string_view backend) {
  if (problem.m == 0 || problem.n == 0 || problem.k == 0)
    throw std::invalid_argument(fmt::format("gemm: {} x {} x {} has an empty extent", problem.m, problem.n, problem.k));
  std::vector<std::string> known;
  for (const GemmBackend& b : gemm_backends()) {
    if (b.name == backend) return b.make(problem);
    known.emplace_back(b.name);
  }
  core::refuse_unknown("gemm backend", backend, known);
}

// Rounding errors of a sum of k terms accumulate like a random walk: u·√k for the sum's own size, u = 2^-24. The factor
// allows for a plain sequential order, which stays under half of this; one missing summand is far above it.
double gemm_tolerance(const GemmShape& problem) { return 4 * 0x1p-24 * std::sqrt(double(problem.k)); }

}  // namespace gradmeter::kernels
