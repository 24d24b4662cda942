// SPDX-License-Identifier: Apache-2.0
// Memory of several GPUs behind one address: NVLink's switches answer a read at this address with the sum over all
// GPUs, and pass a store on to all GPUs (NVLS, "NVLink SHARP"; Hopper and later).
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "runtime/communicator.hpp"
#include "runtime/cuda/device.hpp"

namespace gradmeter::runtime {

class MulticastDriver;

/// Multicast memory of the ranks of a group. Each rank's part lies in the memory of its own GPU, and begins at `own()`.
/// An address at an offset from `all()` stands for the same offset in the parts of all ranks, and only
/// multimem instructions may use it (multimem.cuh). New memory has undefined contents.
/// Cost: the bytes rounded up to the driver's granularity (2 MiB on an H100) on each GPU.
/// Errors: core::Unavailable with the reason, the same on all ranks: GPUs without multicast memory, a driver before
/// CUDA 12.1, a missing Fabric Manager, or processes that may not pass handles to each other.
/// Source: CUDA Driver API, "Multicast Object Management" and "Virtual Memory Management"
class MulticastMemory {
 public:
  /// Collective over ranks of one node, each of which has a GPU of its own.
  MulticastMemory(const Communicator&, const CudaDevice&, std::size_t bytes);
  /// Must run only after all ranks' work on the memory is done.
  ~MulticastMemory();
  MulticastMemory(const MulticastMemory&) = delete;
  MulticastMemory& operator=(const MulticastMemory&) = delete;

  std::byte* own() const;
  std::byte* all() const;

 private:
  std::unique_ptr<MulticastDriver> driver_;
};

}  // namespace gradmeter::runtime
