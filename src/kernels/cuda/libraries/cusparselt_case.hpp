// Sparse products in 2:4 by cuSPARSELt as kernel cases.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "kernels/cases/kernel_case.hpp"

namespace gradmeter::kernels::cuda {

std::string cusparselt_case_refusal(const Problem&);
/// Of compressed A, B and C.
std::size_t cusparselt_case_bytes(const Problem&);
std::unique_ptr<KernelCase> make_cusparselt_case(const Problem&, const KernelCaseOptions&);

}  // namespace gradmeter::kernels::cuda
