// SPDX-License-Identifier: Apache-2.0
#include "compression/cuda/device_codec.hpp"

#include "compression/cuda/bucketed.cuh"
#include "kernels/cuda/each.cuh"

namespace gradmeter::compression::cuda {

using kernels::cuda::check_lengths, kernels::cuda::element_of_thread, kernels::cuda::element_of_warp,
    kernels::cuda::launch_each, kernels::cuda::warp_for_each;

namespace {

__global__ void add_gradient(const float* x, float* residual, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) residual[i] = residual[i] + x[i];
}

__global__ void keep_residual(const float* decoded, float* residual, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const float lost = residual[i] - decoded[i];
  residual[i] = lost - lost == 0.0f ? lost : 0.0f;  // lost - lost is NaN if `lost` is infinite or NaN
}

}  // namespace

void encode_with_feedback(const DeviceCodec& codec, DeviceSpan<const float> x, DeviceSpan<float> residual,
                          DeviceSpan<float> scratch, DeviceSpan<std::byte> wire, const RandomDraw& draw,
                          DeviceSpan<std::byte> workspace, cudaStream_t stream) {
  const std::size_t n = x.size();
  check_lengths("error feedback: the residual", residual.size(), n);
  check_lengths("error feedback: the scratch", scratch.size(), n);
  launch_each(add_gradient, "add_gradient", n, stream, x.device_address(), residual.device_address(), n);
  codec.encode(residual, wire, draw, workspace, stream);
  codec.decode(wire, {}, scratch, workspace, stream);
  launch_each(keep_residual, "keep_loss", n, stream, scratch.device_address(), residual.device_address(), n);
}

namespace {

__global__ void gather_momentum(const float* g, float factor, float momentum, float* u, float* v, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const float now = momentum * u[i] + factor * g[i];
  u[i] = now;
  v[i] = v[i] + now;
}

/// Each warp sums the squares of one piece.
__global__ void square_pieces(const float* g, std::size_t n, double* sums) {
  const std::size_t p = element_of_warp(), first = p * piece_elements;
  if (first >= n) return;
  const double sum = piece_squares(FromFloats{g, false}, 0, first, core::lesser(first + piece_elements, n));
  if (threadIdx.x % 32 == 0) sums[p] = sum;
}

/// A block adds up the sums of a group of pieces.
__global__ void add_group(double* sums, std::size_t pieces) {
  const std::size_t first = blockIdx.x * group_pieces;
  add_tree(sums + first, core::lesser(group_pieces, pieces - first));
}
__global__ void add_groups(double* sums, std::size_t pieces) { add_tree(sums, pieces, group_pieces); }

std::size_t pieces_of(std::size_t n) { return (n + piece_elements - 1) / piece_elements; }

}  // namespace

void accumulate(DeviceSpan<const float> g, float factor, float momentum, DeviceSpan<float> u, DeviceSpan<float> v,
                cudaStream_t stream) {
  check_lengths("accumulate: u", u.size(), g.size());
  check_lengths("accumulate: v", v.size(), g.size());
  launch_each(gather_momentum, "gather_momentum", g.size(), stream, g.device_address(), factor, momentum,
              u.device_address(), v.device_address(), g.size());
}

std::size_t squares_workspace(std::size_t n) { return core::greater<std::size_t>(pieces_of(n), 1) * sizeof(double); }

void sum_of_squares(DeviceSpan<const float> g, DeviceSpan<std::byte> workspace, cudaStream_t stream) {
  const std::size_t pieces = pieces_of(g.size());
  if (workspace.size() < squares_workspace(g.size())) {
    check_lengths("sum_of_squares: workspace", workspace.size(), squares_workspace(g.size()));
  }
  auto* sums = reinterpret_cast<double*>(workspace.device_address());
  if (pieces == 0) {
    runtime::check_cuda(cudaMemsetAsync(sums, 0, sizeof(double), stream), "cudaMemsetAsync");
    return;
  }
  runtime::check_cuda(gpu::launch(square_pieces, warp_for_each(pieces), stream, g.device_address(), g.size(), sums),
                      "square_pieces");
  const gpu::Shape groups{.grid = dim3(gpu::blocks_of(pieces, group_pieces)), .block = dim3(512)};
  runtime::check_cuda(gpu::launch(add_group, groups, stream, sums, pieces), "add_group");
  runtime::check_cuda(gpu::launch(add_groups, {.grid = dim3(1), .block = dim3(512)}, stream, sums, pieces),
                      "add_groups");
}

}  // namespace gradmeter::compression::cuda
