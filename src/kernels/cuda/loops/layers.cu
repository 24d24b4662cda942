#include "kernels/cuda/loops/layers.hpp"

#include "kernels/cuda/each.cuh"

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

__global__ void add_row_each(const float* x, const float* row, std::size_t width, bool is_relu, float* to,
                             std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const float sum = x[i] + row[i % width];
  to[i] = is_relu ? without_negatives(sum) : sum;
}

__global__ void add_channel_each(const float* bias, std::size_t channels, std::size_t pixels, float* images,
                                 std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) images[i] = without_negatives(images[i] + bias[i / pixels % channels]);
}

__global__ void sum_channel(const float* images, std::size_t samples, std::size_t channels, std::size_t pixels,
                            float* sums) {
  const std::size_t channel = element_of_thread();
  if (channel >= channels) return;
  float all = 0;
  for (std::size_t s = 0; s < samples; ++s) {
    const float* const plane = images + (s * channels + channel) * pixels;
    float sum = 0;
    for (std::size_t i = 0; i < pixels; ++i) sum += plane[i];
    all += sum;
  }
  sums[channel] = all;
}

/// NaN is no word either.
__device__ inline bool is_word(float word, std::size_t words) { return word >= 0 && word < static_cast<float>(words); }

__global__ void embed_each(const float* words, const float* table, std::size_t rows, std::size_t width, float* to,
                           std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const float word = words[i / width];
  to[i] = is_word(word, rows) ? table[static_cast<std::size_t>(word) * width + i % width] : nanf("");
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

__global__ void swap_each(const float* from, std::size_t rows, std::size_t columns, std::size_t width, float* to,
                          std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  const std::size_t row = i / width / columns, column = i / width % columns;
  to[(column * rows + row) * width + i % width] = from[i];
}

/// i: of an element in the order of tokens.
__global__ void reorder_each(const float* from, HeadLayout s, std::size_t parts, float* to, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  std::size_t rest = i / s.width;
  const std::size_t head = rest % s.heads;
  rest /= s.heads;
  const std::size_t part = rest % parts;
  rest /= parts;
  const std::size_t step = rest % s.steps, sample = rest / s.steps;
  const std::size_t by_heads =
      (((part * s.samples + sample) * s.heads + head) * s.steps + step) * s.width + i % s.width;
  if (s.to_heads)
    to[by_heads] = from[i];
  else
    to[i] = from[by_heads];
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
  launch_each(add_row_each, "add_row", to.size(), stream, x.device_address(), row.device_address(), row.size(), is_relu,
              to.device_address(), to.size());
}

void add_channels_and_relu(DeviceSpan<const float> bias, std::size_t pixels, DeviceSpan<float> images,
                           cudaStream_t stream) {
  launch_each(add_channel_each, "add_channels_and_relu", images.size(), stream, bias.device_address(), bias.size(),
              pixels, images.device_address(), images.size());
}

void channel_sums(DeviceSpan<const float> images, std::size_t pixels, DeviceSpan<float> sums, cudaStream_t stream) {
  if (sums.empty()) return;
  const std::size_t samples = images.size() / (sums.size() * pixels);
  check_lengths("channel_sums", images.size(), samples * sums.size() * pixels);
  launch_each(sum_channel, "channel_sums", sums.size(), stream, images.device_address(), samples, sums.size(), pixels,
              sums.device_address());
}

void embed(DeviceSpan<const float> words, DeviceSpan<const float> table, std::size_t width, DeviceSpan<float> to,
           cudaStream_t stream) {
  check_lengths("embed", to.size(), words.size() * width);
  launch_each(embed_each, "embed", to.size(), stream, words.device_address(), table.device_address(),
              table.size() / width, width, to.device_address(), to.size());
}

void embed_backward(DeviceSpan<const float> words, DeviceSpan<const float> delta, std::size_t width, bool clears,
                    DeviceSpan<float> table, cudaStream_t stream) {
  check_lengths("embed_backward", delta.size(), words.size() * width);
  const std::size_t rows = table.size() / width;
  if (rows == 0) return;
  runtime::check_cuda(
      gpu::launch(add_word_rows, {.grid = dim3(static_cast<unsigned>(rows)), .block = dim3(threads_for_each)}, stream,
                  words.device_address(), words.size(), delta.device_address(), width, clears, table.device_address()),
      "embed_backward");
}

void swap_rows_and_columns(DeviceSpan<const float> from, std::size_t rows, std::size_t columns, std::size_t width,
                           DeviceSpan<float> to, cudaStream_t stream) {
  check_lengths("swap_rows_and_columns", from.size(), rows * columns * width);
  check_lengths("swap_rows_and_columns", to.size(), from.size());
  launch_each(swap_each, "swap_rows_and_columns", to.size(), stream, from.device_address(), rows, columns, width,
              to.device_address(), to.size());
}

void reorder_heads(DeviceSpan<const float> from, const HeadLayout& s, DeviceSpan<float> to, cudaStream_t stream) {
  const std::size_t parts = from.size() / (s.samples * s.steps * s.heads * s.width);
  check_lengths("reorder_heads", to.size(), parts * s.samples * s.steps * s.heads * s.width);
  launch_each(reorder_each, "reorder_heads", to.size(), stream, from.device_address(), s, parts, to.device_address(),
              to.size());
}

}  // namespace gradmeter::kernels::cuda
