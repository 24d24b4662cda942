#include "kernels/gemm.hpp"

#include <array>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "core/format.hpp"
#include "core/name.hpp"
#include "kernels/gemm_backends.hpp"
#include "kernels/library.hpp"

namespace gradmeter::kernels {

namespace {
constexpr std::array backends{
    GemmBackend{"onednn", "oneDNN matmul primitive, github.com/oneapi-src/oneDNN", &make_onednn_gemm},
    GemmBackend{"reference", "definition, summed in float64 and rounded once", &make_reference_gemm},
};
}  // namespace

std::span<const GemmBackend> gemm_backends() {
  static const bool has_onednn = onednn_refusal().empty();
  return std::span(backends).subspan(has_onednn ? 0 : 1);
}

std::unique_ptr<Gemm> make_gemm(const GemmProblem& problem, std::string_view backend) {
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
double gemm_tolerance(const GemmProblem& problem) { return 4 * 0x1p-24 * std::sqrt(double(problem.k)); }

}  // namespace gradmeter::kernels
