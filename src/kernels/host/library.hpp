// SPDX-License-Identifier: Apache-2.0
// The libraries that the kernels use, with their versions.
#pragma once
#include <map>
#include <string>

#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// Versions by library: {"oneDNN": "2.6.3"}; empty in a build without oneDNN.
std::map<std::string, std::string> library_versions();
/// The reason why oneDNN cannot be used; empty: it can.
std::string onednn_refusal();
/// Keeps the vector loops of all modules from instruction sets that oneDNN may not use, so that ONEDNN_MAX_CPU_ISA
/// limits them too: to SSE4 if oneDNN may not use AVX2, to AVX2 if it may not use AVX-512, else not at all. Other
/// libraries (memcpy, MPI's sums) are not limited. Call it before any loop has run. Without oneDNN it does nothing.
void limit_loops_to_onednn_isa();
/// True if oneDNN has bf16 kernels on this processor; else operations convert bf16 to fp32.
bool has_bf16_kernels();
/// Says in a sentence how bf16 is multiplied: by instructions of the processor, emulated by the library, or in fp32.
/// Empty for other precisions.
std::string how_multiplied(Precision);

}  // namespace gradmeter::kernels
