// SPDX-License-Identifier: Apache-2.0
// Stand-ins for a build without oneDNN: the reference computes products, and cases that only oneDNN has are refused.
#include "core/error.hpp"
#include "kernels/backends.hpp"
#include "kernels/host/library.hpp"
#include "kernels/number_format.hpp"

namespace gradmeter::kernels {

std::map<std::string, std::string> library_versions() { return {}; }

std::string onednn_refusal() { return "built without oneDNN: install it (Debian: libdnnl-dev) and configure again"; }

void limit_loops_to_onednn_isa() {}

bool has_bf16_kernels() { return false; }
std::string how_multiplied(Precision) { return {}; }

std::string onednn_gemm_refusal(const Problem&) { return onednn_refusal(); }
std::unique_ptr<Op> make_onednn_gemm(const Problem&, const OpOptions&, runtime::Device&) {
  throw core::UsageError(onednn_refusal());
}

std::string onednn_conv_refusal(const Problem&) { return onednn_refusal(); }
std::unique_ptr<Op> make_onednn_conv(const Problem&, const OpOptions&, runtime::Device&) {
  throw core::UsageError(onednn_refusal());
}

std::string onednn_rnn_refusal(const Problem&) { return onednn_refusal(); }
std::unique_ptr<Op> make_onednn_rnn(const Problem&, const OpOptions&, runtime::Device&) {
  throw core::UsageError(onednn_refusal());
}

// The largest magnitude of int8, since only oneDNN's products need a lower limit.
double largest_int8_weight() { return 127; }

}  // namespace gradmeter::kernels
