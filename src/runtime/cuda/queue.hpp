// SPDX-License-Identifier: Apache-2.0
// A stream of a GPU as a queue; and HostView, through which host code in a queue's work reads and writes the GPU's
// memory (by copies in pinned memory).
#pragma once
#include <boost/icl/interval_set.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/device.hpp"

namespace gradmeter::runtime {

struct PinnedTraits {
  using type = void*;
  static type null() noexcept { return nullptr; }
  static void free(type address) noexcept { note_cuda_error(cudaFreeHost(address), "cudaFreeHost"); }
};

/// Keeps unused events for reuse, since creating an event takes longer than recording it. Any thread may use the pool.
class EventPool {
 public:
  std::unique_ptr<CudaEvent> take();
  void give_back(std::unique_ptr<CudaEvent>) noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<CudaEvent>> free_;
};

/// Gives one queue's work access to its device, on the queue's thread. Host code gets a copy in pinned memory. A copy
/// is as long as the whole allocation on the device and is kept for later requests, but only bytes that host code asks
/// for are transferred.
class HostView final : public DeviceAccess {
 public:
  HostView(const CudaDevice& device, const Stream& stream) : device_(device), stream_(stream) {}
  /// Waits for the stream, then copies those bytes from the device that the pinned copy does not hold yet. Errors:
  /// std::logic_error for an address that is not the device's; BackendError.
  std::byte* host_address(const std::byte* device_address, std::size_t bytes, bool is_writable) const override;
  /// Queues copies to the device of all bytes that host code may have written. The next `host_address` copies from the
  /// device again.
  void flush() const;
  /// The stream for kernels. `flush` comes first, so that kernels see what host code has written.
  cudaStream_t stream() const {
    flush();
    return stream_.get();
  }
  std::string_view kernels() const override { return "cuda"; }
  bool copy(std::byte* to, const std::byte* from, std::size_t bytes) const override;
  void to_transport(const std::byte* device_address, std::size_t bytes) const override;
  void from_transport(std::byte* device_address, std::size_t bytes) const override;
  EventPtr mark() const override;
  /// An event at this point of the stream. It does not cover writes of host code that `flush` has not yet queued.
  EventPtr event() const;
  /// Calls `then` after the next wait for the stream, in CudaQueue::synchronise or `host_address`. Several functions
  /// are called in the order in which they were given.
  void when_done(StoredWork then) const { when_done_.push_back(std::move(then)); }
  /// Calls the functions of `when_done`. The stream's work must be done.
  void run_when_done() const;
  /// How often host code has asked for memory so far.
  std::size_t requests() const { return requests_; }

 private:
  using Addresses = boost::icl::interval_set<std::uintptr_t>;
  /// The pinned copy of one allocation.
  struct Copy {
    std::size_t bytes = 0;
    Handle<PinnedTraits> memory;
    std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(memory.get()) + offset; }
  };
  Copy& copy_of(const CudaDevice::Range&) const;
  /// The address in the pinned copy for an address of the device. The copy must exist (`copy_of`).
  std::byte* pinned_address_of(std::uintptr_t device_address) const;

  const CudaDevice& device_;
  const Stream& stream_;
  mutable std::map<std::uintptr_t, Copy> copies_;  ///< by the allocation's first address
  mutable Addresses present_, written_;  ///< device addresses that the copies hold, and that host code may have written
  mutable std::size_t requests_ = 0;
  mutable std::vector<StoredWork> when_done_;
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();  ///< events may outlive the queue
};

/// A stream of a GPU. Its work runs in parallel with that of other queues of the device. Errors of all members:
/// BackendError with CUDA's own text.
class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(CudaDevice&);
  ~CudaQueue() override;
  CudaDevice& device() override { return device_; }
  /// Calls the work now, on this thread, with access to this queue's stream and HostView.
  void submit(std::string_view label, Cost, const Work&) override;
  EventPtr record() override;
  /// If the event is not one of a CUDA stream, the calling thread waits for it.
  void begin_after(const EventPtr&) override;
  void synchronise() override;
  /// Captures the work as a CUDA graph. Null also if a call of CUDA fails; the error is dropped, since the call fails
  /// again when the caller submits the work without capture.
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& body) override;
  /// The work that the host did because no kernel exists: for each label, the number of submissions that asked the
  /// HostView for memory. Each request waits for the stream.
  using HostWork = std::map<std::string, std::size_t, std::less<>>;
  const HostWork& host_work() const { return host_work_; }

 private:
  CudaDevice& device_;
  Stream stream_;
  HostView view_;
  HostWork host_work_;
};

}  // namespace gradmeter::runtime
