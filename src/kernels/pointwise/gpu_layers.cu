// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/host_device.hpp"
#include "kernels/cuda/divisor.cuh"
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/row_sums.cuh"
#include "kernels/pointwise/gpu_kernels.hpp"

namespace gradmeter::kernels::cuda {
namespace {

__global__ void fill_each(float* to, float value, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) to[i] = value;
}

__global__ void add_each(const float* a, const float* b, float* to, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) to[i] = a[i] + b[i];
}

__global__ void add_and_scale_each(const float* a, const float* b, float factor, float* to, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) to[i] = (a[i] + b[i]) * factor;
}

__device__ inline float without_negatives(float x) { return x < 0 ? 0 : x; }

template <class IndexDivisor>
__global__ void add_row_each(const float* x, const float* row, IndexDivisor width, bool is_relu, float* to,
                             std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const float sum = x[i] + row[width.divide(i).rest];
  to[i] = is_relu ? without_negatives(sum) : sum;
}

template <class IndexDivisor>
__global__ void add_channel_each(const float* bias, IndexDivisor channels, IndexDivisor pixels, float* images,
                                 std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) images[i] = without_negatives(images[i] + bias[channels.divide(pixels.divide(i).whole).rest]);
}

/// A warp sums a plane, one channel of one image, in the order of plane_sum.
__global__ void sum_planes(const float* images, std::size_t pixels, float* sums, std::size_t planes) {
  const std::size_t plane = element_of_warp();
  if (plane >= planes) return;
  float sum = 0;
  for (std::size_t i = threadIdx.x % 32; i < pixels; i += partial_sums_of_plane) sum += images[plane * pixels + i];
  for (int lane_mask = 16; lane_mask > 0; lane_mask /= 2) sum += __shfl_xor_sync(~0u, sum, lane_mask);
  if (threadIdx.x % 32 == 0) sums[plane] = sum;
}

/// True if the number is that of a row of the table; false for NaN.
__device__ inline bool is_word(float number, std::size_t table_rows) {
  return number >= 0 && number < static_cast<float>(table_rows);
}

template <class IndexDivisor>
__global__ void embed_each(const float* words, const float* table, std::size_t rows, IndexDivisor width, float* to,
                           std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const Quotient at = width.divide(i);
  const float word = words[at.whole];
  to[i] = is_word(word, rows) ? table[static_cast<std::size_t>(word) * width.value + at.rest] : nanf("");
}

__global__ void add_word_rows(const float* words, std::size_t count, const float* delta, std::size_t width, bool clears,
                              float* table) {
  const std::size_t row = blockIdx.x;
  for (std::size_t column = threadIdx.x; column < width; column += blockDim.x) {
    float* const to = table + row * width + column;
    float sum = clears ? 0 : *to;
    for (std::size_t i = 0; i < count; ++i)
      if (words[i] == static_cast<float>(row)) sum += delta[i * width + column];
    *to = sum;
  }
}

template <class IndexDivisor>
__global__ void swap_each(const float* from, std::size_t rows, IndexDivisor columns, IndexDivisor width, float* to,
                          std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const Quotient at = width.divide(i), line = columns.divide(at.whole);
  to[(line.rest * rows + line.whole) * width.value + at.rest] = from[i];
}

template <class IndexDivisor>
struct HeadDivisors {
  IndexDivisor width, heads, parts, steps;
};
/// Moves element i between the order of tokens [samples × steps × parts × heads × width], in which i counts, and the
/// order of heads [parts × samples × heads × steps × width].
template <class IndexDivisor>
__global__ void reorder_each(const float* from, HeadLayout s, HeadDivisors<IndexDivisor> divisors, float* to,
                             std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const Quotient at = divisors.width.divide(i), head = divisors.heads.divide(at.whole),
                 part = divisors.parts.divide(head.whole), step = divisors.steps.divide(part.whole);
  const std::size_t sample = step.whole;
  const std::size_t index_by_heads =
      (((part.rest * s.samples + sample) * s.heads + head.rest) * s.steps + step.rest) * s.width + at.rest;
  if (s.to_heads)
    to[index_by_heads] = from[i];
  else
    to[i] = from[index_by_heads];
}

}  // namespace

void fill(DeviceSpan<float> to, float value, cudaStream_t stream) {
  launch_each(fill_each, "fill", to.size(), stream, to.device_address(), value, to.size());
}

void add(DeviceSpan<const float> a, DeviceSpan<const float> b, DeviceSpan<float> to, cudaStream_t stream) {
  check_lengths("add", a.size(), to.size());
  check_lengths("add", b.size(), to.size());
  launch_each(add_each, "add", to.size(), stream, a.device_address(), b.device_address(), to.device_address(),
              to.size());
}

void add_and_scale(DeviceSpan<const float> a, DeviceSpan<const float> b, float factor, DeviceSpan<float> to,
                   cudaStream_t stream) {
  check_lengths("add_and_scale", a.size(), to.size());
  check_lengths("add_and_scale", b.size(), to.size());
  launch_each(add_and_scale_each, "add_and_scale", to.size(), stream, a.device_address(), b.device_address(), factor,
              to.device_address(), to.size());
}

void add_row(DeviceSpan<const float> x, DeviceSpan<const float> row, bool is_relu, DeviceSpan<float> to,
             cudaStream_t stream) {
  check_lengths("add_row", x.size(), to.size());
  if (row.empty()) return;
  with_divisors_below(to.size(), [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_each(add_row_each<IndexDivisor>, "add_row", to.size(), stream, x.device_address(), row.device_address(),
                IndexDivisor(row.size()), is_relu, to.device_address(), to.size());
  });
}

void add_channels_and_relu(DeviceSpan<const float> bias, std::size_t pixels, DeviceSpan<float> images,
                           cudaStream_t stream) {
  with_divisors_below(images.size(), [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_each(add_channel_each<IndexDivisor>, "add_channels_and_relu", images.size(), stream, bias.device_address(),
                IndexDivisor(bias.size()), IndexDivisor(pixels), images.device_address(), images.size());
  });
}

std::size_t channel_sums_workspace(std::size_t images, std::size_t channels) {
  return images * channels + column_sums_workspace(images, channels);
}

void channel_sums(DeviceSpan<const float> images, std::size_t pixels, DeviceSpan<float> sums,
                  DeviceSpan<float> workspace, cudaStream_t stream) {
  if (sums.empty()) return;
  const std::size_t channels = sums.size(), samples = images.size() / (channels * pixels), planes = samples * channels;
  check_lengths("channel_sums", images.size(), planes * pixels);
  check_lengths("channel_sums: workspace", workspace.size(), channel_sums_workspace(samples, channels));
  float* const by_image = workspace.device_address();
  if (planes > 0) {
    runtime::check_cuda(
        gpu::launch(sum_planes, warp_for_each(planes), stream, images.device_address(), pixels, by_image, planes),
        "sum_planes");
  }
  launch_column_sums("channel_sums", MatrixRows{by_image, channels}, samples, channels, SumsTo{sums.device_address()},
                     workspace.subspan(planes), stream);
}

void embed(DeviceSpan<const float> words, DeviceSpan<const float> table, std::size_t width, DeviceSpan<float> to,
           cudaStream_t stream) {
  check_lengths("embed", to.size(), words.size() * width);
  with_divisors_below(to.size(), [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_each(embed_each<IndexDivisor>, "embed", to.size(), stream, words.device_address(), table.device_address(),
                table.size() / width, IndexDivisor(width), to.device_address(), to.size());
  });
}

void embed_backward(DeviceSpan<const float> words, DeviceSpan<const float> delta, std::size_t width, bool clears,
                    DeviceSpan<float> table, cudaStream_t stream) {
  check_lengths("embed_backward", delta.size(), words.size() * width);
  const std::size_t rows = table.size() / width;
  if (rows == 0) return;
  runtime::check_cuda(
      gpu::launch(add_word_rows, {.grid = dim3(gpu::blocks_of(rows, 1)), .block = dim3(threads_of_block)}, stream,
                  words.device_address(), words.size(), delta.device_address(), width, clears, table.device_address()),
      "embed_backward");
}

void swap_rows_and_columns(DeviceSpan<const float> from, std::size_t rows, std::size_t columns, std::size_t width,
                           DeviceSpan<float> to, cudaStream_t stream) {
  check_lengths("swap_rows_and_columns", from.size(), rows * columns * width);
  check_lengths("swap_rows_and_columns", to.size(), from.size());
  with_divisors_below(to.size(), [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_each(swap_each<IndexDivisor>, "swap_rows_and_columns", to.size(), stream, from.device_address(), rows,
                IndexDivisor(columns), IndexDivisor(width), to.device_address(), to.size());
  });
}

void reorder_heads(DeviceSpan<const float> from, const HeadLayout& s, DeviceSpan<float> to, cudaStream_t stream) {
  const std::size_t parts = from.size() / (s.samples * s.steps * s.heads * s.width);
  check_lengths("reorder_heads", to.size(), parts * s.samples * s.steps * s.heads * s.width);
  with_divisors_below(to.size(), [&]<class IndexDivisor>(std::type_identity<IndexDivisor>) {
    launch_each(reorder_each<IndexDivisor>, "reorder_heads", to.size(), stream, from.device_address(), s,
                HeadDivisors<IndexDivisor>{IndexDivisor(s.width), IndexDivisor(s.heads), IndexDivisor(parts),
                                           IndexDivisor(s.steps)},
                to.device_address(), to.size());
  });
}

namespace {

/// The results of each row, in the workspace.
struct RowResults {
  double* loss;
  std::uint64_t* correct;  ///< 1 if the row's largest logit is the label's, else 0
};

/// The largest logit of a warp's row and the first index at which it occurs, in all lanes. A NaN counts as no larger
/// than another number.
struct Top {
  float value;
  std::size_t place;
};
__device__ Top top_of(const float* in, std::size_t classes) {
  Top top{in[0], 0};
  for (std::size_t j = threadIdx.x % 32; j < classes; j += 32) {
    if (in[j] > top.value) top = {in[j], j};
  }
  for (int lane_mask = 16; lane_mask > 0; lane_mask /= 2) {
    const float value = __shfl_xor_sync(~0u, top.value, lane_mask);
    const std::size_t place = __shfl_xor_sync(~0u, top.place, lane_mask);
    if (value > top.value || (value == top.value && place < top.place)) top = {value, place};
  }
  return top;
}

/// A warp computes the loss and the gradient of a row, with sums in float64.
__global__ void each_row(const float* logits, const std::int32_t* labels, std::size_t rows, std::size_t classes,
                         const float* loss_scale, float* gradient, RowResults out) {
  const std::size_t row = element_of_warp();
  if (row >= rows) return;
  const float* in = logits + row * classes;
  const unsigned lane = threadIdx.x % 32;
  const Top top = top_of(in, classes);
  double sum = 0;
  for (std::size_t j = lane; j < classes; j += 32) sum += static_cast<double>(expf(in[j] - top.value));
  for (int lane_mask = 16; lane_mask > 0; lane_mask /= 2) sum += __shfl_xor_sync(~0u, sum, lane_mask);
  const auto label = static_cast<std::size_t>(labels[row]);
  const float scale = (loss_scale ? *loss_scale : 1.0f) / static_cast<float>(rows);
  for (std::size_t j = lane; gradient && j < classes; j += 32) {
    // float64 keeps the digits of p - 1 where p is close to 1.
    const double share = static_cast<double>(expf(in[j] - top.value)) / sum;
    gradient[row * classes + j] = static_cast<float>((share - (j == label ? 1.0 : 0.0)) * static_cast<double>(scale));
  }
  if (lane != 0) return;
  const double label_minus_largest =
      label < classes ? static_cast<double>(in[label]) - static_cast<double>(top.value) : core::quiet_nan<double>();
  out.loss[row] = log(sum) - label_minus_largest;
  out.correct[row] = top.place == label ? 1 : 0;
}

/// Adds up the rows' results in one thread block, so that the order is fixed.
__global__ void add_rows_up(RowResults rows, std::size_t count, CrossEntropy* total) {
  GPU_SHARED(double, loss_sums, [threads_of_block]);
  GPU_SHARED(std::uint64_t, correct_sums, [threads_of_block]);
  double loss = 0;
  std::uint64_t correct = 0;
  for (std::size_t r = threadIdx.x; r < count; r += threads_of_block) {
    loss += rows.loss[r];
    correct += rows.correct[r];
  }
  loss_sums[threadIdx.x] = loss;
  correct_sums[threadIdx.x] = correct;
  for (unsigned half = threads_of_block / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    loss_sums[threadIdx.x] += loss_sums[threadIdx.x + half];
    correct_sums[threadIdx.x] += correct_sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *total = {loss_sums[0], static_cast<std::size_t>(correct_sums[0])};
}

}  // namespace

std::size_t cross_entropy_workspace(std::size_t rows) { return rows * (sizeof(double) + sizeof(std::uint64_t)); }

void softmax_cross_entropy(DeviceSpan<const float> logits, DeviceSpan<const std::int32_t> labels, std::size_t classes,
                           DeviceSpan<const float> loss_scale, DeviceSpan<float> gradient,
                           DeviceSpan<CrossEntropy> total, DeviceSpan<std::byte> workspace, cudaStream_t stream) {
  const std::size_t rows = labels.size();
  check_lengths("softmax_cross_entropy: logits", logits.size(), rows * classes);
  if (!gradient.empty()) check_lengths("softmax_cross_entropy: gradient", gradient.size(), logits.size());
  if (!loss_scale.empty()) check_lengths("softmax_cross_entropy: loss_scale", loss_scale.size(), 1);
  check_lengths("softmax_cross_entropy: total", total.size(), 1);
  check_lengths("softmax_cross_entropy: workspace", workspace.size(), cross_entropy_workspace(rows));
  auto* loss = reinterpret_cast<double*>(workspace.device_address());
  const RowResults out{loss, reinterpret_cast<std::uint64_t*>(loss + rows)};
  if (rows > 0) {
    runtime::check_cuda(
        gpu::launch(each_row, warp_for_each(rows), stream, logits.device_address(), labels.device_address(), rows,
                    classes, loss_scale.device_address(), gradient.device_address(), out),
        "each_row");
  }
  runtime::check_cuda(gpu::launch(add_rows_up, {.grid = dim3(1), .block = dim3(threads_of_block)}, stream, out, rows,
                                  total.device_address()),
                      "add_rows_up");
}

}  // namespace gradmeter::kernels::cuda
