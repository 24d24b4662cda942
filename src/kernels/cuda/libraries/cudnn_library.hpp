// Shared by all uses of cuDNN: its errors as BackendError, its handles, its types.
#pragma once
#include <cudnn.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <source_location>

#include "core/element.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/handle.hpp"

namespace gradmeter::kernels::cuda {

/// Errors: BackendError with the library's own text and the caller's place.
void check_cudnn(cudnnStatus_t, const char* call, std::source_location = std::source_location::current());
/// For destructors: notes an error that cannot be thrown.
void release_cudnn(cudnnStatus_t) noexcept;

template <class T, cudnnStatus_t (*destroy)(T)>
struct CudnnTraits {
  using type = T;
  static type null() noexcept { return nullptr; }
  static void free(type handle) noexcept { release_cudnn(destroy(handle)); }
};
using CudnnHandle = runtime::Handle<CudnnTraits<cudnnHandle_t, cudnnDestroy>>;
using CudnnTensor = runtime::Handle<CudnnTraits<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>>;

/// The library's state on one device: made in a tenth of a second, and kept while an operation has it.
class CudnnLibrary {
 public:
  /// Of the current device. Errors: BackendError.
  static std::shared_ptr<CudnnLibrary> of_device();
  CudnnLibrary();
  CudnnLibrary(const CudnnLibrary&) = delete;
  CudnnLibrary& operator=(const CudnnLibrary&) = delete;

  /// A handle is for one thread at a time: `work` takes it, and its calls go into the stream.
  template <class Work>
  void in(cudaStream_t stream, const Work& work) {
    const std::lock_guard lock(mutex_);
    check_cudnn(cudnnSetStream(handle_.get(), stream), "cudnnSetStream");
    work(handle_.get());
  }

 private:
  std::mutex mutex_;
  CudnnHandle handle_;
};

/// fp32, bf16, fp16. Errors: std::logic_error for others.
cudnnDataType_t cudnn_type(Precision);
core::Element cudnn_element(Precision);
/// Multiplies fp32 as it is, never cut to tf32; halves on tensor cores.
cudnnMathType_t cudnn_math(Precision);
/// Errors: BackendError for an extent that the library has no room for.
int cudnn_int(std::size_t);

}  // namespace gradmeter::kernels::cuda
