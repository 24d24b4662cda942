// The functions behind kernel_cases(), one group for each file of cases. Users call make_kernel_case,
// which names the backend.
#pragma once
#include "kernels/cases/kernel_case.hpp"

namespace gradmeter::kernels {

std::size_t operand_bytes(const Problem&);         ///< each operand once, as `bytes`
std::size_t native_operand_bytes(const Problem&);  ///< as `native_bytes`
std::unique_ptr<KernelCase> make_gemm_case(const Problem&, const KernelCaseOptions&);

std::size_t lns_case_bytes(const Problem&);
std::unique_ptr<KernelCase> make_lns_case(const Problem&, const KernelCaseOptions&);

std::unique_ptr<KernelCase> make_conv_case(const Problem&, const KernelCaseOptions&);

std::size_t rnn_case_bytes(const Problem&);
std::unique_ptr<KernelCase> make_rnn_case(const Problem&, const KernelCaseOptions&);

std::string sparse_case_refusal(const Problem&);
std::size_t sparse_case_bytes(const Problem&);
std::unique_ptr<KernelCase> make_sparse_case(const Problem&, const KernelCaseOptions&);

std::string pointwise_case_refusal(const Problem&);
std::size_t pointwise_case_bytes(const Problem&);
std::unique_ptr<KernelCase> make_pointwise_case(const Problem&, const KernelCaseOptions&);

}  // namespace gradmeter::kernels
