// SPDX-License-Identifier: Apache-2.0
// Runs the threads of a kernel.
#pragma once
#include "support/cuda_emulator/device.hpp"

namespace cuda_emulator {

struct GridShape {
  dim3 grid, block;
  unsigned shared_bytes = 0;
  bool cooperative = false;  ///< all blocks at once; otherwise one or two
};

/// `call` once a thread. The work of a stream: it pauses when all of its threads wait in a loop.
void run_grid(const Call& call, const GridShape&);
/// Does a kernel run now? For the handler of faults too.
bool in_kernel();
std::uint64_t threads_run();

}  // namespace cuda_emulator
