#include "kernels/cases/kernel_case.hpp"

#include <array>
#include <optional>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/cases/makers.hpp"
#include "kernels/op.hpp"

namespace gradmeter::kernels {
namespace {

constexpr std::string_view sparse_source = "own, on Highway: CSR and blocks of 16 x 1",
                           pointwise_source = "own, on Highway: optimizers' updates and an lstm cell";

constexpr std::array others{
    KernelCaseInfo{"highway", sparse_source, KernelKind::sparse, Precision::fp32, sparse_case_refusal,
                   sparse_case_bytes, make_sparse_case},
    KernelCaseInfo{"highway", pointwise_source, KernelKind::pointwise, Precision::fp32, pointwise_case_refusal,
                   pointwise_case_bytes, make_pointwise_case},
    KernelCaseInfo{"highway", pointwise_source, KernelKind::pointwise, Precision::bf16, pointwise_case_refusal,
                   pointwise_case_bytes, make_pointwise_case},
};

/// Data and check of an operation that backends have as an Op.
KernelCaseInfo case_of(const OpBackend& b) {
  KernelCaseInfo row{b.name, b.source, b.operation, b.precision, b.refusal, operand_bytes, make_gemm_case};
  if (b.operation == KernelKind::conv) row.make = make_conv_case;
  if (b.operation == KernelKind::rnn) row.resident_bytes = rnn_case_bytes, row.make = make_rnn_case;
  if (info(b.precision).logarithm_bits > 0) row.resident_bytes = lns_case_bytes, row.make = make_lns_case;
  return row;
}

/// The row that takes it, or the reason of the last one that does not.
struct Found {
  std::optional<KernelCaseInfo> row;
  std::string why;
};
Found find(const Problem& p, std::string_view backend = {}) {
  Found found{{}, fmt::format("no backend has {} in {}", name(p.operation()), name(p.precision))};
  for (const KernelCaseInfo& row : kernel_cases()) {
    if (row.operation != p.operation() || row.precision != p.precision) continue;
    if (!backend.empty() && row.backend != backend) continue;
    found.why = row.refusal(p);
    if (found.why.empty()) return {row, {}};
  }
  return found;
}

}  // namespace

std::vector<KernelCaseInfo> kernel_cases() {
  std::vector<KernelCaseInfo> all;
  for (const OpBackend& b : op_backends())
    if (b.device == runtime::host_device().name() && !b.is_definition) all.push_back(case_of(b));
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::string kernel_case_refusal(const Problem& p) { return find(p).why; }

std::unique_ptr<KernelCase> make_kernel_case(const Problem& p, const KernelCaseOptions& options) {
  const Found found = find(p, options.backend);
  if (!found.row) throw core::UsageError(found.why);
  KernelCaseOptions o = options;
  o.backend = found.row->backend;
  return found.row->make(p, o);
}

std::size_t kernel_case_bytes(const Problem& p) {
  const Found found = find(p);
  return found.row ? found.row->resident_bytes(p) : 0;
}

}  // namespace gradmeter::kernels
