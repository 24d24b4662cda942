// A device as the owner of memory: where models, optimizers and codecs keep what they compute on.
#pragma once
#include <cstddef>
#include <memory>
#include <string_view>

#include "core/element.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::runtime {

/// A buffer and the memory behind it, which is freed with the last copy.
struct OwnedBuffer {
  Buffer buffer = no_floats;
  std::shared_ptr<void> memory = {};
};

class Queue;

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;  ///< "host"
  /// Zeroed, and aligned to a cache line or more. Errors: BackendError or std::bad_alloc when there is none left.
  virtual OwnedBuffer allocate(core::Element, std::size_t count) = 0;
  /// Memory of this process that transports reach, as this device's own: its queues work on it. It stays the caller's
  /// and outlives the result.
  virtual OwnedBuffer map(core::Element, std::span<std::byte> memory) = 0;
  /// Memory of this process from and to which this device copies fastest while the result lives. Null: all is alike.
  virtual std::shared_ptr<void> pin(std::span<std::byte> memory) { return (void)memory, nullptr; }
  /// A stand-in for tests: what it computes is right, its times mean nothing.
  virtual bool is_emulated() const { return false; }
  /// Is what transports reach a copy, kept up by `Queue::to_transport` and `from_transport`?
  virtual bool is_staged() const { return false; }
  /// Where transports, and the sums on the way, reach a buffer of this device or of the host.
  virtual std::byte* transport_address(const Buffer&) const = 0;
  virtual const std::byte* transport_address(const ConstBuffer&) const = 0;
  /// For one task of the calling thread. Its work runs beside that of others.
  virtual std::unique_ptr<Queue> make_queue() = 0;
  /// Of its largest cache. 0: unknown, here and below.
  virtual std::size_t last_cache_bytes() const { return 0; }
  /// What `allocate` may still give; others may take of it.
  virtual std::size_t free_bytes() const { return 0; }
};

/// The memory of this process.
Device& host_device();

}  // namespace gradmeter::runtime
