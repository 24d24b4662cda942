// What NVML says of the GPU that a rank computes on, behind each block that is measured on it.
#pragma once
#include <string>
#include <utility>

#include "runtime/cuda/nvml.hpp"

namespace gradmeter::runtime {

class GpuGauge {
 public:
  /// bus_id: as CUDA has it, "0000:65:00.0". Without NVML all readings are nothing.
  explicit GpuGauge(std::string bus_id, const char* library = "libnvidia-ml.so.1")
      : nvml_(library), bus_id_(std::move(bus_id)) {}
  /// Cost: that of Nvml::read.
  GpuState read() const { return nvml_.read(bus_id_); }

 private:
  Nvml nvml_;
  std::string bus_id_;
};

}  // namespace gradmeter::runtime
