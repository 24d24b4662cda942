// SPDX-License-Identifier: Apache-2.0
// A GPU as a Device: it has its own memory, and its queues are streams. Work (a callable) is called when it is
// submitted, on the submitter's thread. Work that has a kernel launches this kernel in `gpu::stream()`, and is done
// when the stream has run the kernel. Other work is host code: if it asks a buffer for its memory, it gets a copy in
// pinned memory, which is copied back afterwards (`HostView`). So any work runs on a GPU's memory, but work without a
// kernel has to wait for two copies.
#pragma once
#include <map>
#include <mutex>

#include "runtime/communicator.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/device.hpp"

namespace gradmeter::runtime {

/// Makes a GPU the calling thread's current one. On a thread that has selected none, any call of CUDA's runtime makes a
/// context on GPU 0, even a call that only asks for an event or frees memory. Errors: BackendError.
void select_gpu(int number);
/// For destructors, which may run on any thread: selects the GPU, and notes an error that cannot be thrown.
void select_gpu_to_release(int number) noexcept;
/// The GPU that the calling thread has selected; -1: none.
int selected_gpu() noexcept;

/// One of a node's GPUs, by its number in this process. It must outlive its buffers and queues. Any thread may call any
/// member.
class CudaDevice final : public Device {
 public:
  /// Errors: BackendError when there is no GPU of this number, or no driver.
  explicit CudaDevice(int number);
  std::string_view name() const override { return "cuda"; }
  OwnedBuffer allocate(core::Element, std::size_t count) override;
  /// Allocates as many bytes of GPU memory as `memory` has. Transports reach `memory`, and Queue::to_transport and
  /// from_transport copy between the two.
  OwnedBuffer allocate_beside(core::Element, std::span<std::byte> memory) override;
  /// An allocator that replaces cudaMalloc. `allocate` throws when no memory is left.
  struct Allocator {
    void* (*allocate)(std::size_t bytes);
    void (*free)(void*) noexcept;
  };
  OwnedBuffer allocate_beside(core::Element, std::span<std::byte> memory, const Allocator&);
  bool is_emulated() const override;
  /// True if ranks whose kernels wait for each other may share a GPU. On hardware they may not, since kernels on one
  /// GPU need not run at the same time. In tests they may if the one emulated device acts as a separate GPU for
  /// each rank (cuda_emulator::SharedDevice).
  static bool ranks_may_share();
  /// "ranks 0 and 1 share the GPU 0000:3b:00.0", the same text on all ranks; empty: no ranks share a GPU, or they may
  /// (`ranks_may_share`). Collective. `number`: this rank's GPU. Errors: BackendError.
  static std::string shared_gpu(const Communicator&, int number);
  std::size_t last_cache_bytes() const override;
  std::size_t free_bytes() const override;
  bool is_staged() const override { return true; }
  std::shared_ptr<void> pin(std::span<std::byte> memory) override;
  std::byte* transport_address(const Buffer&) const override;
  const std::byte* transport_address(const ConstBuffer&) const override;
  std::unique_ptr<Queue> make_queue() override;

  int number() const { return number_; }
  /// Makes this GPU the calling thread's current one. Errors: BackendError.
  void select() const { select_gpu(number_); }

  /// An allocation of this device.
  struct Range {
    std::byte* begin;
    std::size_t bytes;
    std::byte* host_copy;  ///< where transports reach the allocation; null: they cannot
  };
  /// The allocation that holds these bytes. Errors: std::logic_error if none holds all of them.
  Range range_of(const std::byte* address, std::size_t bytes) const;
  /// The address at which transports reach this memory. Errors: std::logic_error where they do not.
  std::byte* host_copy_of(const std::byte* address, std::size_t bytes) const;

 private:
  std::shared_ptr<void> allocate_range(std::size_t bytes, std::byte* host_copy, const Allocator&);

  const int number_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> ranges_;  ///< by first address
};

}  // namespace gradmeter::runtime
