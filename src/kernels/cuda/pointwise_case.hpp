// Our own updates of optimizers on a GPU as a kernel case, in fp32 or bf16.
#pragma once
#include <memory>

#include "kernels/cases/kernel_case.hpp"

namespace gradmeter::kernels::cuda {

/// Takes what device_pointwise_refusal does not refuse.
std::unique_ptr<KernelCase> make_pointwise_case(const Problem&, const KernelCaseOptions&);

}  // namespace gradmeter::kernels::cuda
