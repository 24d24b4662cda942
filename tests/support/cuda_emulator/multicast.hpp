// SPDX-License-Identifier: Apache-2.0
// What multimem instructions reach: the memory of all ranks behind one address.
#pragma once
#include <cstddef>
#include <vector>

namespace cuda_emulator {

/// The addresses at which the parts behind a multicast address lie; another call may overwrite them. Empty, and
/// reported: it is no such address.
const std::vector<std::byte*>& parts_behind(const std::byte* all);

}  // namespace cuda_emulator
