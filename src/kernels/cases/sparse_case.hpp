// What sparse cases of all devices draw and check.
#pragma once
#include "kernels/cases/kernel_case.hpp"
#include "kernels/sparse.hpp"

namespace gradmeter::kernels {

/// The host's memory of one operand set.
struct SparseOperands {
  SparseMatrix a;
  AlignedVector<float> b, c;
};
/// Gaussian A and B; C is zero. The same for the same seed.
SparseOperands random_sparse_operands(const SparseShape&, std::uint64_t seed);
/// As KernelCase::check, of what is in C.
KernelCaseCheck checked_product(const SparseShape&, SparseOperands&, double flops_at_most, bool inject_error);

}  // namespace gradmeter::kernels
