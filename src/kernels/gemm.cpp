#include "kernels/gemm.hpp"

#include <array>
#include <cmath>
#include <stdexcept>

#include "core/format.hpp"
#include "kernels/op.hpp"

namespace gradmeter::kernels {

Gemm::Gemm(const GemmShape& s, std::string_view backend) {
  if (s.m == 0 || s.n == 0 || s.k == 0)
    throw std::invalid_argument(fmt::format("gemm: {} x {} x {} has an empty extent", s.m, s.n, s.k));
  op_ = prepare({.shape = s}, {.backend = backend});
}

Gemm::~Gemm() = default;

void Gemm::run(std::span<const float> a, std::span<const float> b, std::span<const float> bias, std::span<float> c) {
  const std::array<runtime::ConstBuffer, 3> inputs{a, b, bias};
  const runtime::Buffer output = c;
  runtime::HostQueue queue;
  op_->run(queue, "gemm", std::span(inputs).first(bias.empty() ? 2 : 3), {&output, 1});
}

std::string Gemm::implementation() const { return op_->implementation(); }

// Rounding errors of a sum of k terms accumulate like a random walk: u·√k for the sum's own size, u = 2^-24. The factor
// allows for a plain sequential order, which stays under half of this; one missing summand is far above it.
double gemm_tolerance(const GemmShape& problem) { return 4 * 0x1p-24 * std::sqrt(double(problem.k)); }

}  // namespace gradmeter::kernels
