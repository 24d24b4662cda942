// What every codec on a GPU asks of its arguments, checked before a launch: afterwards only the device would notice.
#pragma once
#include <cstdint>
#include <stdexcept>

#include "compression/cuda/bucketed.hpp"
#include "core/format.hpp"

namespace gradmeter::compression::cuda {

inline void check_aligned(const void* address, std::size_t bytes, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes == 0) return;
  throw std::invalid_argument(
      fmt::format("{} at {} does not begin at a multiple of {} bytes, which kernels read in one access: move it", what,
                  address, bytes));
}

inline void check_wire(DeviceSpan<const std::byte> wire, std::size_t bytes) {
  if (wire.size() < bytes) {
    throw std::invalid_argument(
        fmt::format("a wire of {} bytes is too short for its tensor: give {}", wire.size(), bytes));
  }
  check_aligned(wire.device_address(), 16, "a wire");
}

inline void check_addend(DeviceSpan<const float> addend, DeviceSpan<float> out) {
  if (addend.empty() || addend.size() == out.size()) return;
  throw std::invalid_argument(
      fmt::format("{} numbers cannot be added to {} decoded ones: give as many, or none", addend.size(), out.size()));
}

inline void check_workspace(DeviceSpan<std::byte> workspace, std::size_t bytes) {
  if (workspace.size() < bytes) {
    throw std::invalid_argument(
        fmt::format("a workspace of {} bytes is too small: give workspace_bytes(n), {}", workspace.size(), bytes));
  }
  check_aligned(workspace.device_address(), 256, "a workspace");
}

inline Wires checked_wires(std::span<const DeviceSpan<const std::byte>> wires, std::size_t bytes) {
  if (wires.empty() || wires.size() > most_wires) {
    throw std::invalid_argument(
        fmt::format("{} wires cannot be added up: a kernel takes 1 to {}", wires.size(), most_wires));
  }
  Wires all{};
  for (const auto& wire : wires) {
    check_wire(wire, bytes);
    all.of[all.count++] = wire.device_address();
  }
  return all;
}

}  // namespace gradmeter::compression::cuda
