// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cudnn.hpp"

#include <limits>
#include <map>
#include <stdexcept>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/cuda/handles.hpp"

namespace gradmeter::kernels::cuda {

void check_cudnn(cudnnStatus_t status, const char* call, std::source_location where) {
  if (status != CUDNN_STATUS_SUCCESS) throw core::BackendError("cuDNN", call, cudnnGetErrorString(status), where);
}

void release_cudnn(cudnnStatus_t status) noexcept {
  if (status != CUDNN_STATUS_SUCCESS) core::note_failed_release("cuDNN", "destroy", cudnnGetErrorString(status));
}

CudnnLibrary::CudnnLibrary() { check_cudnn(cudnnCreate(handle_.out_address()), "cudnnCreate"); }

std::shared_ptr<CudnnLibrary> CudnnLibrary::of_device() {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<CudnnLibrary>> by_device;
  int device = 0;
  runtime::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  if (auto known = by_device[device].lock()) return known;
  auto library = std::make_shared<CudnnLibrary>();
  by_device[device] = library;
  return library;
}

cudnnDataType_t cudnn_type(Precision p) {
  switch (p) {
    case Precision::fp32:
      return CUDNN_DATA_FLOAT;
    case Precision::bf16:
      return CUDNN_DATA_BFLOAT16;
    case Precision::fp16:
      return CUDNN_DATA_HALF;
    default:
      throw std::logic_error("cuDNN was asked for a precision that it is not used for");
  }
}
core::Element cudnn_element(Precision p) {
  return p == Precision::fp32 ? core::Element::f32 : p == Precision::bf16 ? core::Element::bf16 : core::Element::f16;
}
cudnnMathType_t cudnn_math(Precision p) { return p == Precision::fp32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH; }

int cudnn_int(std::size_t n) {
  if (n > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw core::BackendError("cuDNN", "extent", fmt::format("{} is too large", n));
  return static_cast<int>(n);
}

}  // namespace gradmeter::kernels::cuda
