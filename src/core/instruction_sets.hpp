// SPDX-License-Identifier: Apache-2.0
// The limit of the instruction sets that loops may use.
#pragma once
#include <string_view>

namespace gradmeter::core {

/// Keeps the loops that are compiled for several instruction sets, in all modules, from those above a limit that is
/// written as oneDNN writes it: "SSE41", "AVX", "AVX2", "AVX2_VNNI"; any other text is no limit. So one variable,
/// ONEDNN_MAX_CPU_ISA, makes the whole program one for older processors. To be called before any loop has run.
void limit_instruction_sets(std::string_view limit);

}  // namespace gradmeter::core
