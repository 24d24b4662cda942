// SPDX-License-Identifier: Apache-2.0
// The libraries that the kernels use, with their versions.
#pragma once
#include <map>
#include <string>

#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// {"oneDNN": "2.6.3"}; empty in a build without it.
std::map<std::string, std::string> library_versions();
/// The reason why oneDNN cannot be used; empty: it can.
std::string onednn_refusal();
/// Keeps the loops that are compiled for several instruction sets, in all modules, from those that oneDNN may not use,
/// so that ONEDNN_MAX_CPU_ISA limits both. The sets within AVX-512 are one set for loops. Other libraries (memcpy,
/// MPI's sums) are not limited. To be called before any loop has run. Without oneDNN it does nothing.
void limit_loops_as_library();
/// True if oneDNN has bf16 kernels on this processor; else operations convert bf16 to fp32.
bool has_bf16_kernels();
/// How bf16 is multiplied: by instructions of the processor, emulated by the library, or in fp32. Empty for other
/// precisions.
std::string how_multiplied(Precision);

}  // namespace gradmeter::kernels
