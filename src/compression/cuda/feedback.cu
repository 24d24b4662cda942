#include "compression/cuda/feedback.hpp"

#include "kernels/cuda/each.cuh"

namespace gradmeter::compression::cuda {

using kernels::cuda::check_lengths, kernels::cuda::element_of_thread, kernels::cuda::launch_each;

namespace {

__global__ void add_gradient(const float* x, float* residual, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) residual[i] = residual[i] + x[i];
}

__global__ void keep_loss(const float* decoded, float* residual, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const float left = residual[i] - decoded[i];
  residual[i] = left - left == 0.0f ? left : 0.0f;  // infinities and NaN are not equal to 0 here
}

}  // namespace

void encode_with_feedback(const DeviceCodec& codec, DeviceSpan<const float> x, DeviceSpan<float> residual,
                          DeviceSpan<float> scratch, DeviceSpan<std::byte> wire, const Draw& draw,
                          DeviceSpan<std::byte> workspace, cudaStream_t stream) {
  const std::size_t n = x.size();
  check_lengths("error feedback: the residual", residual.size(), n);
  check_lengths("error feedback: the scratch", scratch.size(), n);
  launch_each(add_gradient, "add_gradient", n, stream, x.device_address(), residual.device_address(), n);
  codec.encode(residual, wire, draw, workspace, stream);
  codec.decode(wire, {}, scratch, workspace, stream);
  launch_each(keep_loss, "keep_loss", n, stream, scratch.device_address(), residual.device_address(), n);
}

}  // namespace gradmeter::compression::cuda
