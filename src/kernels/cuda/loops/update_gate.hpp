// Updates that a loss' scale may skip, as kernels are given them.
#pragma once
#include "core/host_device.hpp"
#include "kernels/update_number.hpp"

namespace gradmeter::kernels::cuda {

/// Of an update: its number, and the words in device memory that the stream's earlier work may change; null: it is
/// made. So the host need not know whether a step is skipped. Read by kernels alone.
struct UpdateGate {
  std::uint64_t number = 1;
  const LossScaleCounts* counts = nullptr;
  GRADMETER_HOST_DEVICE bool is_skipped() const { return counts && counts->skips != 0; }
  GRADMETER_HOST_DEVICE std::uint64_t counted() const {
    return counts ? number - static_cast<std::uint64_t>(counts->skipped) : number;
  }
};

}  // namespace gradmeter::kernels::cuda
