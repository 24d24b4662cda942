// --device: what ranks compute on.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bench/engine/sweep.hpp"
#include "runtime/communicator.hpp"
#include "runtime/cuda/gpu_gauge.hpp"
#include "runtime/device.hpp"

namespace gradmeter::cli {

/// The values that the flag may have.
inline const std::vector<std::string> device_names{"cpu", "cuda"};

struct OpenedDevice {
  std::shared_ptr<runtime::Device> device;         ///< null: the host
  std::string note;                                ///< what a reader of the results must know of it; empty: nothing
  std::shared_ptr<const runtime::GpuGauge> gauge;  ///< of its clock and power; null: of the host, which has none
};
/// Collective over the world: each rank's device among those of its node that it sees. Errors: core::Unavailable in one
/// line when a rank has none, or the program was built without CUDA.
OpenedDevice open_device(const std::string& name, const runtime::Communicator& world);
/// For a process that measures alone: the first that it sees.
OpenedDevice open_device(const std::string& name);
/// The same, but rows that an emulated device has timed are mistrusted, and those of a device with a note have it.
bench::RowListener checking(bench::RowListener, const runtime::Device&, const std::string& note = {});

}  // namespace gradmeter::cli
