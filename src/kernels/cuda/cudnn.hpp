// SPDX-License-Identifier: Apache-2.0
// The code that all callers of cuDNN share: its errors as BackendError, its handles, its types.
#pragma once
#include <cudnn.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <source_location>

#include "core/element.hpp"
#include "kernels/cuda/library.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels::cuda {

/// Throws if a call failed. Errors: BackendError with the library's own text and the caller's source location.
void check_cudnn(cudnnStatus_t, const char* call, std::source_location = std::source_location::current());
/// Notes an error that a destructor cannot throw.
void release_cudnn(cudnnStatus_t) noexcept;

template <class T, cudnnStatus_t (*destroy)(T)>
using CudnnOwner = LibraryHandle<T, destroy, release_cudnn>;
using CudnnHandle = CudnnOwner<cudnnHandle_t, cudnnDestroy>;
using CudnnTensor = CudnnOwner<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;

/// The library's state on one device. Making it takes a tenth of a second, so operations share it while any of them
/// lives.
class CudnnLibrary {
 public:
  /// Returns the state of the current device. Errors: BackendError.
  static std::shared_ptr<CudnnLibrary> of_device();
  CudnnLibrary();
  CudnnLibrary(const CudnnLibrary&) = delete;
  CudnnLibrary& operator=(const CudnnLibrary&) = delete;

  /// Lends `work` a handle whose calls go into the stream. A handle serves one thread at a time.
  template <class Work>
  void with_handle(cudaStream_t stream, const Work& work) {
    const std::lock_guard lock(mutex_);
    check_cudnn(cudnnSetStream(handle_.get(), stream), "cudnnSetStream");
    work(handle_.get());
  }

 private:
  std::mutex mutex_;
  CudnnHandle handle_;
};

/// Takes fp32, bf16 and fp16. Errors: std::logic_error for others.
cudnnDataType_t cudnn_type(Precision);
core::Element cudnn_element(Precision);
/// fp32 is multiplied as it is, never cut to tf32; bf16 and fp16 are multiplied on tensor cores.
cudnnMathType_t cudnn_math(Precision);
/// Narrows an extent. Errors: BackendError when the library's int cannot hold it.
int cudnn_int(std::size_t);

}  // namespace gradmeter::kernels::cuda
