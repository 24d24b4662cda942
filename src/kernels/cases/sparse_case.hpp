// What sparse cases of all devices draw and check.
#pragma once
#include <functional>

#include "core/element.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/sparse.hpp"

namespace gradmeter::kernels {

/// What A and B are stored in. Errors: std::logic_error for a precision that no sparse product has.
core::Element sparse_element(Precision);

/// Numbers of A and B are those of the precision's storage type.
struct SparseOperands {
  SparseMatrix a;
  AlignedVector<float> b;
};
/// Gaussian A and B, of int8 uniform whole numbers. The same for the same seed.
SparseOperands random_sparse_operands(const SparseShape&, Precision, std::uint64_t seed);

/// Element i of C [m x n], row-major.
using ProductElement = std::function<double(std::size_t i)>;
/// As KernelCase::finish_check, of a C that is there.
KernelCaseCheck checked_product(const SparseShape&, Precision, const SparseOperands&, const ProductElement& c,
                                const CheckedCall&);

}  // namespace gradmeter::kernels
