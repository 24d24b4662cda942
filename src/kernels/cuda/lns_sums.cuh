// The table of logarithmic sums, as kernels look it up.
#pragma once
#include <cstdint>

#include "core/host_device.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

/// G±; from the last entry on both are zero.
struct LnsSums {
  const std::int16_t* doubled;
  std::uint32_t entries;

  static LnsSums of(runtime::DeviceSpan<const std::int16_t> doubled) {
    return {doubled.device_address(), static_cast<std::uint32_t>(doubled.size() / 2 - 1)};
  }
  GRADMETER_HOST_DEVICE std::int32_t operator()(std::uint32_t d, bool opposite) const {
    return doubled[2 * core::lesser(d, entries) + (opposite ? 1 : 0)] / 2;
  }
};

}  // namespace gradmeter::kernels::cuda
