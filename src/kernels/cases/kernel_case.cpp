// SPDX-License-Identifier: Apache-2.0
#include "kernels/cases/kernel_case.hpp"

#include <optional>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/op.hpp"

namespace gradmeter::kernels {
namespace {

constexpr std::string_view sparse_source = "own, on Highway: CSR, which 2:4 is held as, and blocks of 16 x 1",
                           pointwise_source = "own, on Highway: optimizers' updates and an lstm cell";

std::vector<KernelCaseInfo>& cases_without_op() {
  static std::vector<KernelCaseInfo> rows{
      {"highway", sparse_source, KernelKind::sparse, Precision::fp32, sparse_case_refusal, sparse_case_bytes,
       make_sparse_case},
      {"highway", pointwise_source, KernelKind::pointwise, Precision::fp32, pointwise_case_refusal,
       pointwise_case_bytes, make_pointwise_case},
      {"highway", pointwise_source, KernelKind::pointwise, Precision::bf16, pointwise_case_refusal,
       pointwise_case_bytes, make_pointwise_case},
  };
  return rows;
}

/// The case of an operation that backends have as an Op.
KernelCaseInfo case_of(const OpBackend& b) {
  KernelCaseInfo row{b.name, b.source, b.operation, b.precision, b.refusal, operand_bytes, make_product_case, b.device};
  if (b.device != runtime::host_device().name()) row.resident_bytes = native_operand_bytes;
  if (b.operation == KernelKind::rnn) row.resident_bytes = rnn_case_bytes, row.make = make_rnn_case;
  if (info(b.precision).logarithm_bits > 0) row.resident_bytes = lns_case_bytes, row.make = make_lns_case;
  return row;
}

/// The row that takes the problem, or the reason of the last one that does not.
struct FoundCase {
  std::optional<KernelCaseInfo> row;
  std::string why;
};
FoundCase find_case(const Problem& p, const runtime::Device& device, std::string_view backend = {}) {
  FoundCase found{{}, fmt::format("no backend has {} in {}", name(p.operation()), name(p.precision))};
  if (&device != &runtime::host_device()) found.why += fmt::format(" on {}", device.name());
  for (const KernelCaseInfo& row : kernel_cases(device)) {
    if (row.operation != p.operation() || row.precision != p.precision) continue;
    if (!backend.empty() && row.backend != backend) continue;
    found.why = row.refusal(p);
    if (found.why.empty()) return {row, {}};
  }
  return found;
}

}  // namespace

std::vector<KernelCaseInfo> kernel_cases(const runtime::Device& device) {
  std::vector<KernelCaseInfo> cases;
  for (const OpBackend& b : op_backends())
    if (b.device == device.name() && !b.is_untimed) cases.push_back(case_of(b));
  for (const KernelCaseInfo& row : cases_without_op())
    if (row.device == device.name()) cases.push_back(row);
  return cases;
}

void add_kernel_case(const KernelCaseInfo& row) { cases_without_op().push_back(row); }

std::string kernel_case_refusal(const Problem& p, const runtime::Device& device) { return find_case(p, device).why; }

std::unique_ptr<KernelCase> make_kernel_case(const Problem& p, const KernelCaseOptions& options) {
  const FoundCase found = find_case(p, *options.device, options.backend);
  if (!found.row) throw core::UsageError(found.why);
  KernelCaseOptions o = options;
  o.backend = found.row->backend;
  return found.row->make(p, o);
}

std::size_t kernel_case_bytes(const Problem& p, const runtime::Device& device) {
  const FoundCase found = find_case(p, device);
  return found.row ? found.row->resident_bytes(p) : 0;
}

}  // namespace gradmeter::kernels
