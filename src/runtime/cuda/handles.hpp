// SPDX-License-Identifier: Apache-2.0
// Owners of CUDA's streams, events and memory, with checked calls. Empty where CUDA is not compiled in.
#pragma once
#ifdef GRADMETER_HAS_CUDA
#include <cuda_runtime_api.h>

#include <cstddef>
#include <limits>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/error.hpp"
#include "core/units.hpp"
#include "runtime/device_memory.hpp"
#include "runtime/handle.hpp"

namespace gradmeter::runtime {

/// Throws if a call failed. Errors: BackendError with CUDA's own text and the caller's file and line.
inline void check_cuda(cudaError_t error, const char* call,
                       std::source_location where = std::source_location::current()) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // clears the error that the runtime remembers, which the next call would report again
  throw core::BackendError("CUDA", call, cudaGetErrorString(error), where);
}

/// For destructors, which cannot throw: notes an error. An error because CUDA is shutting down at the program's end is
/// ignored.
inline void note_cuda_error(cudaError_t error, const char* call) noexcept {
  if (error == cudaSuccess || error == cudaErrorCudartUnloading) return;
  cudaGetLastError();
  core::note_failed_release("CUDA", call, cudaGetErrorString(error));
}

/// Notes the name of a kernel, or a label of work, that this thread gives to a GPU. A kernel's error appears only in a
/// later call, so the report of a lost GPU (`lost_gpu`) includes `recent_gpu_work`.
void note_gpu_work(std::string_view name) noexcept;
/// The last names that this thread has noted, the oldest first: "forward.gemm, multiply_tile"; empty: none.
std::string recent_gpu_work();

struct StreamTraits {
  using type = cudaStream_t;
  static type null() noexcept { return nullptr; }
  static void free(type stream) noexcept { note_cuda_error(cudaStreamDestroy(stream), "cudaStreamDestroy"); }
};
struct EventTraits {
  using type = cudaEvent_t;
  static type null() noexcept { return nullptr; }
  static void free(type event) noexcept { note_cuda_error(cudaEventDestroy(event), "cudaEventDestroy"); }
};
struct DeviceAllocationTraits {
  using type = void*;
  static type null() noexcept { return nullptr; }
  static void free(type address) noexcept { note_cuda_error(cudaFree(address), "cudaFree"); }
};

class CudaEvent;

/// A queue of work on the device that is current when it is made. It does not wait for the default stream.
class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreateWithFlags(handle_.out_address(), cudaStreamNonBlocking), "cudaStreamCreate"); }
  cudaStream_t get() const { return handle_.get(); }
  void synchronize() const { check_cuda(cudaStreamSynchronize(get()), "cudaStreamSynchronize"); }
  /// Makes all work that is queued after this call wait until the event has happened.
  void wait(const CudaEvent& event) const;

 private:
  Handle<StreamTraits> handle_;
};

/// A point in a stream, with its time. An event that was never recorded counts as done.
class CudaEvent {
 public:
  CudaEvent() { check_cuda(cudaEventCreateWithFlags(handle_.out_address(), cudaEventDefault), "cudaEventCreate"); }
  cudaEvent_t get() const { return handle_.get(); }
  void record(const Stream& stream) const { check_cuda(cudaEventRecord(get(), stream.get()), "cudaEventRecord"); }
  void synchronize() const { check_cuda(cudaEventSynchronize(get()), "cudaEventSynchronize"); }
  bool done() const {
    const cudaError_t state = cudaEventQuery(get());
    if (state == cudaErrorNotReady) return false;
    check_cuda(state, "cudaEventQuery");
    return true;
  }
  /// Time on the device between two events that have happened; its resolution is about half a microsecond.
  core::Seconds since(const CudaEvent& start) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start.get(), get()), "cudaEventElapsedTime");
    return {1e-3 * static_cast<double>(milliseconds)};
  }

 private:
  Handle<EventTraits> handle_;
};

inline void Stream::wait(const CudaEvent& event) const {
  check_cuda(cudaStreamWaitEvent(get(), event.get(), 0), "cudaStreamWaitEvent");
}

/// Allocates memory of the current device, not initialised. Errors: BackendError, which says how much memory is free if
/// there is too little.
void* allocate_device_memory(std::size_t bytes, std::source_location where = std::source_location::current());

/// Owns `count` elements, not initialised, on the device that is current when the buffer is made. Errors: BackendError
/// without enough memory.
template <class T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "device memory is copied byte by byte");

 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t count) : count_(count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
      throw core::BackendError("CUDA", "cudaMalloc", "more bytes than an address space has");
    }
    if (count > 0) *memory_.out_address() = allocate_device_memory(count * sizeof(T));
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : memory_(std::move(other.memory_)), count_(std::exchange(other.count_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  std::size_t size() const { return count_; }
  DeviceSpan<T> span() { return DeviceSpan<T>(static_cast<T*>(memory_.get()), count_); }
  DeviceSpan<const T> span() const { return DeviceSpan<const T>(static_cast<const T*>(memory_.get()), count_); }

 private:
  Handle<DeviceAllocationTraits> memory_;
  std::size_t count_ = 0;
};

/// Copies between memory of equal sizes. Returns when the copy is queued; host memory must live until the stream has
/// made the copy. Errors: BackendError, also when the sizes differ.
template <class T>
void copy(DeviceSpan<T> to, std::span<const std::type_identity_t<T>> from, const Stream& stream,
          std::source_location where = std::source_location::current()) {
  if (to.size() != from.size()) throw core::BackendError("CUDA", "copy", "sizes differ", where);
  check_cuda(cudaMemcpyAsync(to.device_address(), from.data(), to.bytes(), cudaMemcpyHostToDevice, stream.get()),
             "cudaMemcpyAsync", where);
}
template <class T>
void copy(std::span<T> to, DeviceSpan<const std::type_identity_t<T>> from, const Stream& stream,
          std::source_location where = std::source_location::current()) {
  if (to.size() != from.size()) throw core::BackendError("CUDA", "copy", "sizes differ", where);
  check_cuda(cudaMemcpyAsync(to.data(), from.device_address(), from.bytes(), cudaMemcpyDeviceToHost, stream.get()),
             "cudaMemcpyAsync", where);
}
template <class T>
void copy(DeviceSpan<T> to, DeviceSpan<const std::type_identity_t<T>> from, const Stream& stream,
          std::source_location where = std::source_location::current()) {
  if (to.size() != from.size()) throw core::BackendError("CUDA", "copy", "sizes differ", where);
  check_cuda(
      cudaMemcpyAsync(to.device_address(), from.device_address(), to.bytes(), cudaMemcpyDeviceToDevice, stream.get()),
      "cudaMemcpyAsync", where);
}

/// Copies to memory of the current device, and waits until the work of every stream can read it. `cudaMemcpy` does not
/// guarantee that: from pageable memory it returns once the last bytes are staged, and the streams of this program do
/// not wait for the default stream. Errors: BackendError, also when the sizes differ.
inline void upload(DeviceSpan<std::byte> to, std::span<const std::byte> from,
                   std::source_location where = std::source_location::current()) {
  const Stream stream;
  copy<std::byte>(to, from, stream, where);
  stream.synchronize();
}
/// Sets every byte of memory of the current device to `byte`, and waits until that is done, which `cudaMemset` does
/// not. Errors: BackendError.
inline void fill(DeviceSpan<std::byte> to, unsigned char byte,
                 std::source_location where = std::source_location::current()) {
  const Stream stream;
  check_cuda(cudaMemsetAsync(to.device_address(), byte, to.bytes(), stream.get()), "cudaMemsetAsync", where);
  stream.synchronize();
}

}  // namespace gradmeter::runtime
#endif
