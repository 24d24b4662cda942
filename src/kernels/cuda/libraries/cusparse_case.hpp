// Sparse times dense by cuSPARSE as a kernel case.
#pragma once
#include <memory>
#include <string>

#include "kernels/cases/kernel_case.hpp"

namespace gradmeter::kernels::cuda {

std::string cusparse_case_refusal(const Problem&);
std::unique_ptr<KernelCase> make_cusparse_case(const Problem&, const KernelCaseOptions&);

}  // namespace gradmeter::kernels::cuda
