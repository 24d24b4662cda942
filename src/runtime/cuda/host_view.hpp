// What host code sees of a GPU's memory while work of a queue runs: copies in pinned memory.
#pragma once
#include <boost/icl/interval_set.hpp>
#include <cstdint>
#include <map>

#include "runtime/cuda/device.hpp"

namespace gradmeter::runtime {

struct PinnedTraits {
  using type = void*;
  static type null() noexcept { return nullptr; }
  static void free(type address) noexcept { release_cuda(cudaFreeHost(address), "cudaFreeHost"); }
};

/// Of one queue, for its thread. Each allocation that host code asks for has a copy of its size, kept for the next
/// time.
class HostView final : public DeviceAccess {
 public:
  HostView(const CudaDevice& device, const Stream& stream) : device_(device), stream_(stream) {}
  /// Waits for the stream and copies what is not there yet. Errors: std::logic_error for an address that is not the
  /// device's; BackendError.
  std::byte* host_address(const std::byte* device_address, std::size_t bytes, bool written) const override;
  /// Queues the copies back of what was asked for to be written; the next `host_address` copies anew.
  void flush() const;
  /// For kernels: after what host code has written.
  cudaStream_t stream() const {
    flush();
    return stream_.get();
  }
  std::string_view kernels() const override { return "cuda"; }
  bool copy(std::byte* to, const std::byte* from, std::size_t bytes) const override;
  void to_transport(const std::byte* device_address, std::size_t bytes) const override;
  void from_transport(std::byte* device_address, std::size_t bytes) const override;
  MarkPtr mark() const override;
  /// How often host code asked for memory so far.
  std::size_t requests() const { return requests_; }

 private:
  using Addresses = boost::icl::interval_set<std::uintptr_t>;
  struct Copy {
    std::size_t bytes = 0;
    Handle<PinnedTraits> memory;
    std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(memory.get()) + offset; }
  };
  Copy& copy_of(const CudaDevice::Range&) const;
  /// Where an address of the device is seen.
  std::byte* seen(std::uintptr_t device_address) const;

  const CudaDevice& device_;
  const Stream& stream_;
  mutable std::map<std::uintptr_t, Copy> copies_;  ///< by the allocation's first address
  mutable Addresses present_, written_;
  mutable std::size_t requests_ = 0;
};

}  // namespace gradmeter::runtime
