// SPDX-License-Identifier: Apache-2.0
// What is counted. Under a lock.
#pragma once
#include "support/cuda_emulator/emulator.hpp"

namespace cuda_emulator {

Counts& running_counts();

}  // namespace cuda_emulator
