#include "kernels/cases/kernel_case.hpp"

#include <array>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/cases/makers.hpp"

namespace gradmeter::kernels {
namespace {

constexpr std::string_view gemm_source = "oneDNN matmul primitive, github.com/oneapi-src/oneDNN",
                           lns_source = "own, on Highway; Coleman et al., IEEE Trans. Computers 2000",
                           conv_source = "oneDNN convolution primitive, direct algorithm",
                           rnn_source = "oneDNN rnn, lstm and gru primitives",
                           sparse_source = "own, on Highway: CSR and blocks of 16 x 1",
                           pointwise_source = "own, on Highway: optimizers' updates and an lstm cell";

constexpr std::array table{
    KernelCaseInfo{"onednn", gemm_source, KernelKind::gemm, Precision::fp32, gemm_case_refusal, gemm_case_bytes,
                   make_gemm_case},
    KernelCaseInfo{"onednn", gemm_source, KernelKind::gemm, Precision::bf16, gemm_case_refusal, gemm_case_bytes,
                   make_gemm_case},
    KernelCaseInfo{"onednn", gemm_source, KernelKind::gemm, Precision::int8, gemm_case_refusal, gemm_case_bytes,
                   make_gemm_case},
    KernelCaseInfo{"lns", lns_source, KernelKind::gemm, Precision::lns16, lns_case_refusal, lns_case_bytes,
                   make_lns_case},
    KernelCaseInfo{"lns", lns_source, KernelKind::gemm, Precision::lns16_linear, lns_case_refusal, lns_case_bytes,
                   make_lns_case},
    KernelCaseInfo{"onednn", conv_source, KernelKind::conv, Precision::fp32, conv_case_refusal, conv_case_bytes,
                   make_conv_case},
    KernelCaseInfo{"onednn", conv_source, KernelKind::conv, Precision::bf16, conv_case_refusal, conv_case_bytes,
                   make_conv_case},
    KernelCaseInfo{"onednn", conv_source, KernelKind::conv, Precision::int8, conv_case_refusal, conv_case_bytes,
                   make_conv_case},
    KernelCaseInfo{"onednn", rnn_source, KernelKind::rnn, Precision::fp32, rnn_case_refusal, rnn_case_bytes,
                   make_rnn_case},
    KernelCaseInfo{"onednn", rnn_source, KernelKind::rnn, Precision::bf16, rnn_case_refusal, rnn_case_bytes,
                   make_rnn_case},
    KernelCaseInfo{"onednn", rnn_source, KernelKind::rnn, Precision::int8, rnn_case_refusal, rnn_case_bytes,
                   make_rnn_case},
    KernelCaseInfo{"highway", sparse_source, KernelKind::sparse, Precision::fp32, sparse_case_refusal,
                   sparse_case_bytes, make_sparse_case},
    KernelCaseInfo{"highway", pointwise_source, KernelKind::pointwise, Precision::fp32, pointwise_case_refusal,
                   pointwise_case_bytes, make_pointwise_case},
    KernelCaseInfo{"highway", pointwise_source, KernelKind::pointwise, Precision::bf16, pointwise_case_refusal,
                   pointwise_case_bytes, make_pointwise_case},
};

/// The row that takes it, or the reason of the last one that does not.
struct Found {
  const KernelCaseInfo* row = nullptr;
  std::string why;
};
Found find(const Problem& p) {
  Found found{nullptr, fmt::format("no backend has {} in {}", name(p.operation()), name(p.precision))};
  for (const auto& row : table) {
    if (row.operation != p.operation() || row.precision != p.precision) continue;
    found.why = row.refusal ? row.refusal(p) : "";
    if (found.why.empty()) return {&row, {}};
  }
  return found;
}

}  // namespace

std::span<const KernelCaseInfo> kernel_cases() { return table; }

std::string kernel_case_refusal(const Problem& p) { return find(p).why; }

std::unique_ptr<KernelCase> make_kernel_case(const Problem& p, const KernelCaseOptions& o) {
  const Found found = find(p);
  if (!found.row) throw core::UsageError(found.why);
  return found.row->make(p, o);
}

std::size_t kernel_case_bytes(const Problem& p) {
  const Found found = find(p);
  return found.row ? found.row->resident_bytes(p) : 0;
}

}  // namespace gradmeter::kernels
