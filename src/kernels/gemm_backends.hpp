// The functions behind gemm_backends(). Users call make_gemm.
#pragma once
#include <memory>
#include <span>

#include "kernels/gemm.hpp"
#include "kernels/problems/shape.hpp"

namespace gradmeter::kernels {

std::unique_ptr<Gemm> make_reference_gemm(const GemmShape&);

/// Errors: std::invalid_argument when an operand's length is not the problem's.
inline void require_operands(const GemmShape& p, std::span<const float> a, std::span<const float> b,
                             std::span<const float> bias, std::span<const float> c) {
  require_elements("gemm: a", a.size(), p.m * p.k);
  require_elements("gemm: b", b.size(), p.k * p.n);
  require_elements("gemm: bias", bias.size(), p.bias ? p.n : 0);
  require_elements("gemm: c", c.size(), p.m * p.n);
}

}  // namespace gradmeter::kernels
