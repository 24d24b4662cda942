// Of a build without oneDNN: products are the reference's, and cases that only oneDNN has are refused.
#include "core/error.hpp"
#include "kernels/cases/makers.hpp"
#include "kernels/gemm_backends.hpp"
#include "kernels/library.hpp"

namespace gradmeter::kernels {

std::map<std::string, std::string> library_versions() { return {}; }

std::string onednn_refusal() { return "built without oneDNN: install it (Debian: libdnnl-dev) and configure again"; }

std::unique_ptr<Gemm> make_onednn_gemm(const GemmProblem&) { throw core::UsageError(onednn_refusal()); }

std::string gemm_case_refusal(const Problem&) { return onednn_refusal(); }
std::size_t gemm_case_bytes(const Problem&) { return 0; }
std::unique_ptr<KernelCase> make_gemm_case(const Problem&, const KernelCaseOptions&) {
  throw core::UsageError(onednn_refusal());
}

std::string conv_case_refusal(const Problem&) { return onednn_refusal(); }
std::size_t conv_case_bytes(const Problem&) { return 0; }
std::unique_ptr<KernelCase> make_conv_case(const Problem&, const KernelCaseOptions&) {
  throw core::UsageError(onednn_refusal());
}

std::string rnn_case_refusal(const Problem&) { return onednn_refusal(); }
std::size_t rnn_case_bytes(const Problem&) { return 0; }
std::unique_ptr<KernelCase> make_rnn_case(const Problem&, const KernelCaseOptions&) {
  throw core::UsageError(onednn_refusal());
}

}  // namespace gradmeter::kernels
