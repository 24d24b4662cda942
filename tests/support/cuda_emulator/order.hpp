// SPDX-License-Identifier: Apache-2.0
// The order of this process's work.
#pragma once
#include "support/order.hpp"

namespace cuda_emulator {

/// Under a lock.
extern gradmeter::test::Order order;
/// By the environment: GRADMETER_CUDA_EMULATOR_SEED.
void begin_order();

}  // namespace cuda_emulator
