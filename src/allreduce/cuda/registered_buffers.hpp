// Buffers that a library was told of, so that it moves them from where they lie.
#pragma once
#include <span>

#include "allreduce/collective.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::allreduce {

/// A collective of a library that takes registrations.
class RegistersBuffers {
 public:
  /// Of runtime::map_registrable, until the collective goes; equal ones on all ranks, or none. Not while a call is
  /// under way. Errors: BackendError with the library's own text.
  virtual void register_buffers(std::span<const runtime::Buffer>) = 0;

 protected:
  ~RegistersBuffers() = default;
};

/// The same. Errors: BackendError also where the collective registers nothing.
void register_buffers(Collective&, std::span<const runtime::Buffer>);

}  // namespace gradmeter::allreduce
