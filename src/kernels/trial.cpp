#include "kernels/trial.hpp"

#include <array>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/trials.hpp"

namespace gradmeter::kernels {
namespace {

constexpr std::string_view gemm_source = "oneDNN matmul primitive, github.com/oneapi-src/oneDNN",
                           lns_source = "own, on Highway; Coleman et al., IEEE Trans. Computers 2000",
                           conv_source = "oneDNN convolution primitive, direct algorithm",
                           rnn_source = "oneDNN rnn, lstm and gru primitives",
                           sparse_source = "own, on Highway: CSR and blocks of 16 x 1",
                           pointwise_source = "own, on Highway: optimizers' updates and an lstm cell";

constexpr std::array table{
    TrialInfo{"onednn", gemm_source, Operation::gemm, Precision::fp32, gemm_trial_refusal, gemm_trial_bytes,
              make_gemm_trial},
    TrialInfo{"onednn", gemm_source, Operation::gemm, Precision::bf16, gemm_trial_refusal, gemm_trial_bytes,
              make_gemm_trial},
    TrialInfo{"onednn", gemm_source, Operation::gemm, Precision::int8, gemm_trial_refusal, gemm_trial_bytes,
              make_gemm_trial},
    TrialInfo{"lns", lns_source, Operation::gemm, Precision::lns16, lns_trial_refusal, lns_trial_bytes, make_lns_trial},
    TrialInfo{"lns", lns_source, Operation::gemm, Precision::lns16_linear, lns_trial_refusal, lns_trial_bytes,
              make_lns_trial},
    TrialInfo{"onednn", conv_source, Operation::conv, Precision::fp32, conv_trial_refusal, conv_trial_bytes,
              make_conv_trial},
    TrialInfo{"onednn", conv_source, Operation::conv, Precision::bf16, conv_trial_refusal, conv_trial_bytes,
              make_conv_trial},
    TrialInfo{"onednn", conv_source, Operation::conv, Precision::int8, conv_trial_refusal, conv_trial_bytes,
              make_conv_trial},
    TrialInfo{"onednn", rnn_source, Operation::rnn, Precision::fp32, rnn_trial_refusal, rnn_trial_bytes,
              make_rnn_trial},
    TrialInfo{"onednn", rnn_source, Operation::rnn, Precision::bf16, rnn_trial_refusal, rnn_trial_bytes,
              make_rnn_trial},
    TrialInfo{"onednn", rnn_source, Operation::rnn, Precision::int8, rnn_trial_refusal, rnn_trial_bytes,
              make_rnn_trial},
    TrialInfo{"highway", sparse_source, Operation::sparse, Precision::fp32, sparse_trial_refusal, sparse_trial_bytes,
              make_sparse_trial},
    TrialInfo{"highway", pointwise_source, Operation::pointwise, Precision::fp32, pointwise_trial_refusal,
              pointwise_trial_bytes, make_pointwise_trial},
    TrialInfo{"highway", pointwise_source, Operation::pointwise, Precision::bf16, pointwise_trial_refusal,
              pointwise_trial_bytes, make_pointwise_trial},
};

/// The row that takes it, or the reason of the last one that does not.
struct Found {
  const TrialInfo* row = nullptr;
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

std::span<const TrialInfo> trials() { return table; }

std::string trial_refusal(const Problem& p) { return find(p).why; }

std::unique_ptr<Trial> make_trial(const Problem& p, const TrialOptions& o) {
  const Found found = find(p);
  if (!found.row) throw core::UsageError(found.why);
  return found.row->make(p, o);
}

std::size_t trial_bytes(const Problem& p) {
  const Found found = find(p);
  return found.row ? found.row->resident_bytes(p) : 0;
}

}  // namespace gradmeter::kernels
