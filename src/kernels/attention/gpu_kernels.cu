// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/gpu_kernels.hpp"

#include <cmath>
#include <limits>

#include "core/host_device.hpp"
#include "kernels/cuda/divisor.cuh"
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/row_sums.cuh"

namespace gradmeter::kernels::cuda {
namespace {

constexpr float gelu_cubic = 0.044715f, gelu_slope = 1.5957691216f;  // gelu_slope is 2·√(2/π)

__device__ float gelu_factor(float x) { return sigmoid(gelu_slope * (x + gelu_cubic * (x * (x * x)))); }

__global__ void gelu_each(const float* x, float* y, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) y[i] = x[i] * gelu_factor(x[i]);
}

/// gelu'(x) = σ + x·σ·(1 − σ)·u', where u is the argument of σ.
__global__ void gelu_gradient(const float* x, const float* delta, float* to, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const float v = x[i], factor = gelu_factor(v), u_derivative = gelu_slope * (1 + 3 * gelu_cubic * (v * v));
  to[i] = delta[i] * (factor + v * factor * ((1 - factor) * u_derivative));
}

/// The sum over the lanes of a warp, which all of them get.
__device__ double sum_of_warp(double lane_value) {
  for (int lane_mask = 16; lane_mask > 0; lane_mask /= 2) lane_value += __shfl_xor_sync(~0u, lane_value, lane_mask);
  return lane_value;
}

struct Moments {
  float mean, inverse_deviation;
};
__device__ Moments moments_of(const float* x, std::size_t width) {
  const auto n = static_cast<double>(width);
  double sum = 0, squares = 0;
  for (std::size_t j = threadIdx.x % 32; j < width; j += 32) sum += static_cast<double>(x[j]);
  const double mean = sum_of_warp(sum) / n;
  for (std::size_t j = threadIdx.x % 32; j < width; j += 32) {
    const double distance = static_cast<double>(x[j]) - mean;
    squares += distance * distance;
  }
  return {static_cast<float>(mean), static_cast<float>(1 / sqrt(sum_of_warp(squares) / n + 1e-5))};
}

__global__ void normalise_rows(const float* x, const float* gain, const float* bias, float* y, std::size_t rows,
                               std::size_t width) {
  const std::size_t row = element_of_warp();
  if (row >= rows) return;
  const float* in = x + row * width;
  const Moments m = moments_of(in, width);
  for (std::size_t j = threadIdx.x % 32; j < width; j += 32) {
    y[row * width + j] = (in[j] - m.mean) * m.inverse_deviation * gain[j] + bias[j];
  }
}

/// The gradient of x is (g − mean(g) − x̂·mean(g·x̂))/deviation, where x̂ is the normalised row and g = delta·gain.
__global__ void normalised_gradient(const float* x, const float* gain, const float* delta, float* to, std::size_t rows,
                                    std::size_t width) {
  const std::size_t row = element_of_warp();
  if (row >= rows) return;
  const float *in = x + row * width, *above = delta + row * width;
  const Moments m = moments_of(in, width);
  double g_sum = 0, g_normal_sum = 0;
  for (std::size_t j = threadIdx.x % 32; j < width; j += 32) {
    const float g = above[j] * gain[j];
    g_sum += static_cast<double>(g);
    g_normal_sum += static_cast<double>(g) * static_cast<double>((in[j] - m.mean) * m.inverse_deviation);
  }
  const auto g_mean = static_cast<float>(sum_of_warp(g_sum) / static_cast<double>(width)),
             g_normal_mean = static_cast<float>(sum_of_warp(g_normal_sum) / static_cast<double>(width));
  for (std::size_t j = threadIdx.x % 32; j < width; j += 32) {
    const float normal = (in[j] - m.mean) * m.inverse_deviation;
    to[row * width + j] = (above[j] * gain[j] - g_mean - normal * g_normal_mean) * m.inverse_deviation;
  }
}

__global__ void row_moments(const float* x, std::size_t rows, std::size_t width, float* moments) {
  const std::size_t row = element_of_warp();
  if (row >= rows) return;
  const Moments m = moments_of(x + row * width, width);
  if (threadIdx.x % 32 != 0) return;
  moments[2 * row] = m.mean;
  moments[2 * row + 1] = m.inverse_deviation;
}

/// What each row of x adds to the gradients: columns [0, width) to those of gain, [width, 2·width) to those of bias.
struct ParameterGradients {
  const float *x, *delta, *moments;
  std::size_t width;
  __device__ float operator()(std::size_t row, std::size_t column) const {
    if (column >= width) return delta[row * width + column - width];
    const std::size_t at = row * width + column;
    return delta[at] * ((x[at] - moments[2 * row]) * moments[2 * row + 1]);
  }
};
struct GainAndBias {
  float *gain, *bias;
  std::size_t width;
  __device__ void operator()(std::size_t i, float sum) const {
    if (i < width)
      gain[i] = sum;
    else
      bias[i - width] = sum;
  }
};

/// Row i of each matrix becomes the softmax of its first i + 1 scores, followed by zeros.
template <class IndexDivisor>
__global__ void softmax_rows(float* scores, std::size_t rows, std::size_t steps, IndexDivisor by_steps, float scale) {
  const std::size_t row = element_of_warp();
  if (row >= rows) return;
  float* row_scores = scores + row * steps;
  const std::size_t visible = by_steps.divide(row).rest + 1;
  float largest = -core::infinite_float;
  for (std::size_t j = threadIdx.x % 32; j < visible; j += 32) largest = core::greater(largest, row_scores[j]);
  for (int lane_mask = 16; lane_mask > 0; lane_mask /= 2)
    largest = core::greater(largest, __shfl_xor_sync(~0u, largest, lane_mask));
  double sum = 0;
  for (std::size_t j = threadIdx.x % 32; j < steps; j += 32) {
    row_scores[j] = j < visible ? expf(scale * (row_scores[j] - largest)) : 0.0f;
    sum += static_cast<double>(row_scores[j]);
  }
  const auto inverse = static_cast<float>(1 / sum_of_warp(sum));
  for (std::size_t j = threadIdx.x % 32; j < visible; j += 32) row_scores[j] = row_scores[j] * inverse;
}

template <class IndexDivisor>
__global__ void softmax_gradient(const float* probabilities, float* gradient, std::size_t rows, std::size_t steps,
                                 IndexDivisor by_steps, float scale) {
  const std::size_t row = element_of_warp();
  if (row >= rows) return;
  const float* p = probabilities + row * steps;
  float* g = gradient + row * steps;
  const std::size_t last = by_steps.divide(row).rest;
  double sum = 0;
  for (std::size_t j = threadIdx.x % 32; j <= last; j += 32) {
    sum += static_cast<double>(p[j]) * static_cast<double>(g[j]);
  }
  const auto mean = static_cast<float>(sum_of_warp(sum));
  for (std::size_t j = threadIdx.x % 32; j < steps; j += 32) g[j] = scale * p[j] * (g[j] - mean);
}

/// Launches a kernel with one warp for each row; launches nothing if there are no rows.
template <class... P>
void launch_rows(void (*kernel)(P...), const char* name, std::size_t rows, cudaStream_t stream,
                 std::type_identity_t<P>... arguments) {
  if (rows == 0) return;
  runtime::check_cuda(gpu::launch(kernel, warp_for_each(rows), stream, arguments...), name);
}

/// The number of rows of `width` elements in a buffer. Errors: std::invalid_argument when a row is not whole.
std::size_t rows_of(const char* what, std::size_t elements, std::size_t width) {
  const std::size_t rows = width == 0 ? 0 : elements / width;
  check_lengths(what, elements, rows * width);
  return rows;
}

}  // namespace

void gelu(DeviceSpan<const float> x, DeviceSpan<float> y, cudaStream_t stream) {
  check_lengths("gelu: y", y.size(), x.size());
  launch_each(gelu_each, "gelu_each", x.size(), stream, x.device_address(), y.device_address(), x.size());
}
void gelu_backward(DeviceSpan<const float> x, DeviceSpan<const float> delta, DeviceSpan<float> to,
                   cudaStream_t stream) {
  check_lengths("gelu_backward: delta", delta.size(), x.size());
  check_lengths("gelu_backward: to", to.size(), x.size());
  launch_each(gelu_gradient, "gelu_gradient", x.size(), stream, x.device_address(), delta.device_address(),
              to.device_address(), x.size());
}

void layer_norm(DeviceSpan<const float> x, DeviceSpan<const float> gain, DeviceSpan<const float> bias,
                DeviceSpan<float> y, cudaStream_t stream) {
  check_lengths("layer_norm: y", y.size(), x.size());
  check_lengths("layer_norm: bias", bias.size(), gain.size());
  const std::size_t rows = rows_of("layer_norm: x", x.size(), gain.size());
  launch_rows(normalise_rows, "normalise_rows", rows, stream, x.device_address(), gain.device_address(),
              bias.device_address(), y.device_address(), rows, gain.size());
}

void layer_norm_backward(DeviceSpan<const float> x, DeviceSpan<const float> gain, DeviceSpan<const float> delta,
                         DeviceSpan<float> to, cudaStream_t stream) {
  check_lengths("layer_norm_backward: delta", delta.size(), x.size());
  check_lengths("layer_norm_backward: to", to.size(), x.size());
  const std::size_t rows = rows_of("layer_norm_backward: x", x.size(), gain.size());
  launch_rows(normalised_gradient, "normalised_gradient", rows, stream, x.device_address(), gain.device_address(),
              delta.device_address(), to.device_address(), rows, gain.size());
}

std::size_t layer_norm_workspace(std::size_t rows, std::size_t width) {
  return 2 * rows + column_sums_workspace(rows, 2 * width);
}

void layer_norm_backward_parameters(DeviceSpan<const float> x, DeviceSpan<const float> delta, DeviceSpan<float> gain,
                                    DeviceSpan<float> bias, DeviceSpan<float> workspace, cudaStream_t stream) {
  const std::size_t width = gain.size();
  check_lengths("layer_norm_backward_parameters: delta", delta.size(), x.size());
  check_lengths("layer_norm_backward_parameters: bias", bias.size(), width);
  const std::size_t rows = rows_of("layer_norm_backward_parameters: x", x.size(), width);
  check_lengths("layer_norm_backward_parameters: workspace", workspace.size(), layer_norm_workspace(rows, width));
  float* const moments = workspace.device_address();
  launch_rows(row_moments, "row_moments", rows, stream, x.device_address(), rows, width, moments);
  launch_column_sums("layer_norm_backward_parameters",
                     ParameterGradients{x.device_address(), delta.device_address(), moments, width}, rows, 2 * width,
                     GainAndBias{gain.device_address(), bias.device_address(), width}, workspace.subspan(2 * rows),
                     stream);
}

void causal_softmax(DeviceSpan<float> scores, std::size_t steps, float scale, cudaStream_t stream) {
  rows_of("causal_softmax: scores", scores.size(), steps * steps);
  const std::size_t rows = rows_of("causal_softmax: scores", scores.size(), steps);
  with_divisors_below(rows, [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_rows(softmax_rows<IndexDivisor>, "softmax_rows", rows, stream, scores.device_address(), rows, steps,
                IndexDivisor(steps), scale);
  });
}

void causal_softmax_backward(DeviceSpan<const float> probabilities, DeviceSpan<float> gradient, std::size_t steps,
                             float scale, cudaStream_t stream) {
  check_lengths("causal_softmax_backward: gradient", gradient.size(), probabilities.size());
  rows_of("causal_softmax_backward: gradient", gradient.size(), steps * steps);
  const std::size_t rows = rows_of("causal_softmax_backward: gradient", gradient.size(), steps);
  with_divisors_below(rows, [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_rows(softmax_gradient<IndexDivisor>, "softmax_gradient", rows, stream, probabilities.device_address(),
                gradient.device_address(), rows, steps, IndexDivisor(steps), scale);
  });
}

}  // namespace gradmeter::kernels::cuda
