#include "kernels/cuda/loops/loss_scale.hpp"

#include "kernels/cuda/each.cuh"

namespace gradmeter::kernels::cuda {
namespace {

__global__ void divide_each(float* g, const float* scale, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) g[i] *= 1 / *scale;
}

/// One write a warp that finds something: all write the same.
__global__ void find_not_finite(const float* g, LossScaleCounts* counts, std::size_t n) {
  constexpr std::uint32_t exponent = 0x7f800000;
  const std::size_t i = element_of_thread();
  const bool found = i < n && (__float_as_uint(g[i]) & exponent) == exponent;
  if (__any_sync(~0u, found ? 1 : 0) != 0 && threadIdx.x % 32 == 0)
    atomicExch(reinterpret_cast<unsigned long long*>(&counts->skips), 1ull);
}

__global__ void adapt(float* scale, LossScaleCounts* counts, std::int64_t grow) {
  kernels::end_step(*scale, *counts, grow);
}

}  // namespace

void unscale(DeviceSpan<float> gradients, DeviceSpan<const float> scale, cudaStream_t stream) {
  check_lengths("unscale: scale", scale.size(), 1);
  launch_each(divide_each, "divide_each", gradients.size(), stream, gradients.device_address(), scale.device_address(),
              gradients.size());
}

void check_finite(DeviceSpan<const float> gradients, DeviceSpan<LossScaleCounts> counts, cudaStream_t stream) {
  check_lengths("check_finite: counts", counts.size(), 1);
  launch_each(find_not_finite, "find_not_finite", gradients.size(), stream, gradients.device_address(),
              counts.device_address(), gradients.size());
}

void end_step(DeviceSpan<float> scale, DeviceSpan<LossScaleCounts> counts, std::int64_t grow, cudaStream_t stream) {
  check_lengths("end_step: scale", scale.size(), 1);
  check_lengths("end_step: counts", counts.size(), 1);
  runtime::check_cuda(gpu::launch(adapt, {.grid = dim3(1), .block = dim3(1)}, stream, scale.device_address(),
                                  counts.device_address(), grow),
                      "adapt");
}

}  // namespace gradmeter::kernels::cuda
