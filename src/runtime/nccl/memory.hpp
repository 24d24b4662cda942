// Memory of a GPU that NCCL can register: what registration gains nothing on is not among it.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "core/element.hpp"
#include "runtime/device.hpp"

namespace gradmeter::runtime {

/// Why NCCL registers no memory in this program, with what to do; empty: it does, from 2.19 on.
std::string nccl_registration_refusal();

/// As the GPU's `map`, by ncclMemAlloc: of cudaMalloc's memory NCCL takes the registration, and makes no use of it.
/// Errors: UsageError with nccl_registration_refusal; BackendError with NCCL's own text, or for another device.
OwnedBuffer map_registrable(Device&, core::Element, std::span<std::byte> memory);

}  // namespace gradmeter::runtime
