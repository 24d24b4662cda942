// SPDX-License-Identifier: Apache-2.0
// Code that uses of NVIDIA's libraries share: owners of the libraries' handles and descriptors, and the properties of
// the device by which libraries decide which problems they take.
#pragma once
#include <cuda_runtime_api.h>

#include "runtime/cuda/handles.hpp"
#include "runtime/handle.hpp"

namespace gradmeter::kernels::cuda {

/// `destroy` is the library's call; `release` takes its status, and notes an error that cannot be thrown.
template <class T, auto destroy, auto release>
struct LibraryTraits {
  using type = T;
  static type null() noexcept { return nullptr; }
  static void free(type handle) noexcept { release(destroy(handle)); }
};
template <class T, auto destroy, auto release>
using LibraryHandle = runtime::Handle<LibraryTraits<T, destroy, release>>;

/// Returns the properties of the calling thread's current device. Errors: BackendError.
inline cudaDeviceProp current_device() {
  int device = 0;
  cudaDeviceProp properties{};
  runtime::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  runtime::check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties;
}

}  // namespace gradmeter::kernels::cuda
