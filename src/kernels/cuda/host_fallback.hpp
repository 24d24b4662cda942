// What no library or kernel of a GPU computes, by the host: on copies of the operands, which queues of the device make
// and bring back. For training to go on and for tests; no kernel case times it.
#pragma once
#include <memory>
#include <string>

#include "kernels/op.hpp"

namespace gradmeter::kernels::cuda {

/// Takes what the host takes.
std::string host_fallback_refusal(const Problem&);
/// "on the host: onednn brgemm:avx512_core", by the backend that the host prefers.
std::unique_ptr<Op> make_host_fallback(const Problem&, const OpOptions&, runtime::Device&);

}  // namespace gradmeter::kernels::cuda
