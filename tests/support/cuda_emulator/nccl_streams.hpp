// SPDX-License-Identifier: Apache-2.0
// NCCL's calls as pieces of work in streams, and in the graphs that record them.
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <map>
#include <memory>
#include <vector>

#include "support/cuda_emulator/nccl_parts.hpp"

namespace cuda_emulator {

struct Graph;

using CommPtr = std::shared_ptr<Comm>;

/// Of this process. Never destroyed: the driver's thread uses them.
extern std::map<ncclComm_t, CommPtr>& comms;

/// A call that is not in its stream yet.
struct Pending {
  CommPtr comm;
  cudaStream_t stream;
  NcclPart part;
  const Graph* graph = nullptr;  ///< which the stream recorded into when the call was made
};
using Calls = std::vector<Pending>;

/// Those of one communicator run one group after another, in the order of these calls; those that are captured when
/// their graph is launched, as a group of its own.
ncclResult_t put_in_streams(Calls);

}  // namespace cuda_emulator
