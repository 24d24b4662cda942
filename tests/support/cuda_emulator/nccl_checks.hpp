// SPDX-License-Identifier: Apache-2.0
// What the emulated NCCL refuses of its callers, and says about what they give.
#pragma once
#include <nccl.h>

#include <cstddef>
#include <string>

#include "support/cuda_emulator/nccl_parts.hpp"

namespace cuda_emulator {

bool is_on_device(const void* at, std::size_t bytes);
/// Is all that the call reads and writes on this rank registered with the communicator? Not of a call on nothing.
bool uses_registered(const Comm&, const Description&, const void* from, const void* to);

/// ncclInvalidArgument; `why` is reported, and is the communicator's last error.
ncclResult_t refuse(Comm&, std::string why);
ncclResult_t check_call(Comm&, const Description&, const void* from, const void* to, int peer, const Stream*);

}  // namespace cuda_emulator
