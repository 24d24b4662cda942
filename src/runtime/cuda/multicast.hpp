// SPDX-License-Identifier: Apache-2.0
// Memory of several GPUs behind one address, by NVLink's switches: a read there gives the sum over all GPUs, and a
// store goes to all of them (NVLS, "NVLink SHARP"; Hopper and later).
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "runtime/communicator.hpp"
#include "runtime/cuda/device.hpp"

namespace gradmeter::runtime {

class MulticastDriver;

/// This rank's part is memory of its own GPU, at `own`. The same bytes of all ranks are behind `all`, which only
/// multimem instructions may use (multimem.cuh). New memory has undefined contents.
/// Cost:   the bytes rounded up to the driver's granularity (2 MiB on an H100) on each GPU.
/// Errors: core::Unavailable with the reason, the same on all ranks: GPUs that do not support it, a driver before CUDA
///         12.1, a missing Fabric Manager, or processes that may not pass handles to each other.
/// Source: CUDA Driver API, "Multicast Object Management" and "Virtual Memory Management"
class MulticastMemory {
 public:
  /// Collective over ranks of one node that have a GPU each.
  MulticastMemory(const Communicator&, const CudaDevice&, std::size_t bytes);
  /// Work on the memory must be done on all ranks.
  ~MulticastMemory();
  MulticastMemory(const MulticastMemory&) = delete;
  MulticastMemory& operator=(const MulticastMemory&) = delete;

  std::byte* own() const;
  std::byte* all() const;

 private:
  std::unique_ptr<MulticastDriver> driver_;
};

}  // namespace gradmeter::runtime
