// SPDX-License-Identifier: Apache-2.0
// The code that all callers of NVIDIA's libraries share: owners of the libraries' handles and descriptors, and the
// properties of the device, which decide whether a library takes a problem.
#pragma once
#include <cuda_runtime_api.h>

#include "runtime/cuda/handles.hpp"
#include "runtime/handle.hpp"

namespace gradmeter::kernels::cuda {

/// destroy: the library's function that destroys a T. release: gets the status that `destroy` returns, and notes an
/// error, since a destructor cannot throw it.
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
