#include "allreduce/cuda/registered_buffers.hpp"

#include "core/error.hpp"

namespace gradmeter::allreduce {

void register_buffers(Collective& c, std::span<const runtime::Buffer> buffers) {
  auto* const registers = dynamic_cast<RegistersBuffers*>(&c);
  if (!registers)
    throw core::BackendError("allreduce", c.name(), "it registers no buffers; take nccl, or --buffers arena");
  registers->register_buffers(buffers);
}

}  // namespace gradmeter::allreduce
