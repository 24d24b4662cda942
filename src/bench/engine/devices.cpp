// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/devices.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/communicator.hpp"
#include "runtime/host/gpus.hpp"

#ifdef GRADMETER_HAS_CUDA
#include "kernels/cuda/backends.hpp"
#include "runtime/cuda/device.hpp"
#endif

namespace gradmeter::bench {
namespace {

#ifdef GRADMETER_HAS_CUDA
/// The devices that each rank of the node sees, by their UUIDs.
std::vector<runtime::VisibleDevices> seen_on_node(const runtime::Communicator& node, const runtime::CudaFacts& cuda) {
  std::vector<std::string> uuids;
  for (const runtime::GpuFacts& gpu : cuda.gpus) uuids.push_back(gpu.uuid);
  std::vector<runtime::VisibleDevices> seen;
  for (const std::string& text : node.all_gather_text(fmt::format("{}", fmt::join(uuids, "\n")))) {
    runtime::VisibleDevices& devices = seen.emplace_back();
    for (std::size_t at = 0; !text.empty() && at <= text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      devices.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  return seen;
}

std::shared_ptr<const runtime::GpuGauge> gauge_of(const runtime::GpuFacts& gpu) {
  return std::make_shared<runtime::GpuGauge>(gpu.bus_id);
}
#endif

[[noreturn]] void refuse(const std::string& why) { throw core::Unavailable("--device cuda: " + why); }

}  // namespace

RowListener with_device_caveats(RowListener listener, const runtime::Device& device, const std::string& note) {
  const bool is_emulated = device.is_emulated();
  if (!is_emulated && note.empty()) return listener;
  listener.measured = [inner = std::move(listener.measured), is_emulated, note](core::Point row) {
    if (row.status == core::Status::ok && is_emulated)
      refuse(row, core::Status::mistrusted, "an emulated device: its times measure nothing");
    if (row.status == core::Status::ok) row.reason += (row.reason.empty() ? "" : "; ") + note;
    inner(row);
  };
  return listener;
}

#ifdef GRADMETER_HAS_CUDA
OpenedDevice open_device(const std::string& name, const runtime::Communicator& world) {
  if (name == "cpu") return {};
  kernels::add_cuda_ops();
  const runtime::CudaFacts cuda = runtime::read_cuda();
  const runtime::Communicator node = world.split_by_node();
  const auto seen = seen_on_node(node, cuda);
  const auto chosen = runtime::choose_devices(seen);
  const auto mine = chosen[static_cast<std::size_t>(node.rank())];
  const std::string problem = mine ? "" : cuda.problem.empty() ? "this rank sees no CUDA device" : cuda.problem;
  if (const auto why = runtime::first_report(world, problem).text; !why.empty()) refuse(why);
  std::vector<std::string> devices;
  for (std::size_t r = 0; r < chosen.size(); ++r)
    if (chosen[r]) devices.push_back(seen[r][static_cast<std::size_t>(*chosen[r])]);
  return {std::make_shared<runtime::CudaDevice>(*mine), runtime::shared_devices_note(devices),
          gauge_of(cuda.gpus[static_cast<std::size_t>(*mine)])};
}

OpenedDevice open_device(const std::string& name) {
  if (name == "cpu") return {};
  kernels::add_cuda_ops();
  const runtime::CudaFacts cuda = runtime::read_cuda();
  if (cuda.gpus.empty()) refuse(cuda.problem);
  return {std::make_shared<runtime::CudaDevice>(0), {}, gauge_of(cuda.gpus.front())};
}
#else
OpenedDevice open_device(const std::string& name, const runtime::Communicator&) {
  if (name == "cpu") return {};
  refuse(runtime::read_cuda().problem);
}
OpenedDevice open_device(const std::string& name) {
  if (name == "cpu") return {};
  refuse(runtime::read_cuda().problem);
}
#endif

}  // namespace gradmeter::bench
