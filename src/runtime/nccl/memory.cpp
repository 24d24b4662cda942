#include "runtime/nccl/memory.hpp"

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/nccl/communicator.hpp"

#ifdef GRADMETER_HAS_NCCL
#include <nccl.h>

#include "runtime/cuda/device.hpp"
#include "runtime/nccl/calls.hpp"
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
#define GRADMETER_NCCL_REGISTERS
#endif
#endif

namespace gradmeter::runtime {

#ifdef GRADMETER_NCCL_REGISTERS
namespace {

void* allocate_registrable(std::size_t bytes) {
  void* address = nullptr;
  if (const ncclResult_t result = ncclMemAlloc(&address, bytes); result != ncclSuccess) {
    throw core::BackendError("NCCL", "ncclMemAlloc",
                             fmt::format("{}, of {} for --buffers registered; take arena, or a smaller problem",
                                         ncclGetErrorString(result), core::to_text(core::Bytes{bytes})));
  }
  return address;
}
void free_registrable(void* address) noexcept { release_nccl(ncclMemFree(address), "ncclMemFree"); }

}  // namespace

std::string nccl_registration_refusal() { return {}; }

OwnedBuffer map_registrable(Device& device, core::Element element, std::span<std::byte> memory) {
  auto* const gpu = dynamic_cast<CudaDevice*>(&device);
  if (!gpu) throw core::BackendError("NCCL", "ncclMemAlloc", "it is memory of a GPU: take --device cuda");
  return gpu->map(element, memory, {.allocate = allocate_registrable, .free = free_registrable});
}
#else
std::string nccl_registration_refusal() {
  if (auto why = nccl_refusal(); !why.empty()) return why;
  return "built with an NCCL before 2.19, which registers no buffers: build with a later one, or take --buffers arena";
}

OwnedBuffer map_registrable(Device&, core::Element, std::span<std::byte>) {
  throw core::UsageError(nccl_registration_refusal());
}
#endif

}  // namespace gradmeter::runtime
