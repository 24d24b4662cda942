// SPDX-License-Identifier: Apache-2.0
// The flag --device: the device that ranks compute on.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bench/engine/sweep.hpp"
#include "runtime/communicator.hpp"
#include "runtime/cuda/nvml.hpp"
#include "runtime/device.hpp"

namespace gradmeter::bench {

/// The values of --device.
inline const std::vector<std::string> device_names{"cpu", "cuda"};

struct OpenedDevice {
  std::shared_ptr<runtime::Device> device;  ///< null: the host
  /// A note on the device that readers of the results need; empty: none.
  std::string note;
  std::shared_ptr<const runtime::GpuGauge> gauge;  ///< gauge of its clock and power; null for the host, which has none
};
/// Opens a device for this rank: one of those that the rank sees on its node. name: the value of --device. Collective
/// over the world. Errors: core::Unavailable of one line if some rank sees no device, or without CUDA in the build.
OpenedDevice open_device(const std::string& name, const runtime::Communicator& world);
/// Opens the first device that this process sees, for a process that measures alone.
OpenedDevice open_device(const std::string& name);
/// Returns a listener that passes rows on to the given one. New rows with status ok are changed on the way: on an
/// emulated device their status becomes mistrusted; on other devices the note, if there is one, is added to their
/// reason.
RowListener with_device_caveats(RowListener, const runtime::Device&, const std::string& note = {});

}  // namespace gradmeter::bench
