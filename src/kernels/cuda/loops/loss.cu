#include "kernels/cuda/loops/loss.hpp"

#include <cmath>
#include <limits>

#include "core/host_device.hpp"
#include "kernels/cuda/each.cuh"

namespace gradmeter::kernels::cuda {
namespace {

struct Rows {
  double* loss;
  std::uint64_t* correct;
};

/// The largest of a warp's logits and its first place, in all lanes. NaN is never larger.
struct Top {
  float value;
  std::size_t place;
};
__device__ Top top_of(const float* in, std::size_t classes) {
  Top top{in[0], 0};
  for (std::size_t j = threadIdx.x % 32; j < classes; j += 32) {
    if (in[j] > top.value) top = {in[j], j};
  }
  for (int with = 16; with > 0; with /= 2) {
    const float value = __shfl_xor_sync(~0u, top.value, with);
    const std::size_t place = __shfl_xor_sync(~0u, top.place, with);
    if (value > top.value || (value == top.value && place < top.place)) top = {value, place};
  }
  return top;
}

/// A warp to a row. Sums are in doubles.
__global__ void each_row(const float* logits, const std::int32_t* labels, std::size_t rows, std::size_t classes,
                         const float* loss_scale, float* gradient, Rows out) {
  const std::size_t row = element_of_warp();
  if (row >= rows) return;
  const float* in = logits + row * classes;
  const unsigned lane = threadIdx.x % 32;
  const Top top = top_of(in, classes);
  double sum = 0;
  for (std::size_t j = lane; j < classes; j += 32) sum += static_cast<double>(expf(in[j] - top.value));
  for (int with = 16; with > 0; with /= 2) sum += __shfl_xor_sync(~0u, sum, with);
  const auto label = static_cast<std::size_t>(labels[row]);
  const float scale = (loss_scale ? *loss_scale : 1.0f) / static_cast<float>(rows);
  for (std::size_t j = lane; gradient && j < classes; j += 32) {
    // In float64: a sure answer's p - 1 keeps its digits.
    const double share = static_cast<double>(expf(in[j] - top.value)) / sum;
    gradient[row * classes + j] = static_cast<float>((share - (j == label ? 1.0 : 0.0)) * static_cast<double>(scale));
  }
  if (lane != 0) return;
  const double behind = label < classes ? static_cast<double>(in[label]) - static_cast<double>(top.value)
                                        : std::numeric_limits<double>::quiet_NaN();
  out.loss[row] = log(sum) - behind;
  out.correct[row] = top.place == label ? 1 : 0;
}

/// One block: a fixed order, whatever ran first.
__global__ void add_rows_up(Rows rows, std::size_t count, CrossEntropy* total) {
  GPU_SHARED(double, losses, [threads_for_each]);
  GPU_SHARED(std::uint64_t, corrects, [threads_for_each]);
  double loss = 0;
  std::uint64_t correct = 0;
  for (std::size_t r = threadIdx.x; r < count; r += threads_for_each) {
    loss += rows.loss[r];
    correct += rows.correct[r];
  }
  losses[threadIdx.x] = loss;
  corrects[threadIdx.x] = correct;
  for (unsigned half = threads_for_each / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    losses[threadIdx.x] += losses[threadIdx.x + half];
    corrects[threadIdx.x] += corrects[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *total = {losses[0], static_cast<std::size_t>(corrects[0])};
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
  const Rows out{loss, reinterpret_cast<std::uint64_t*>(loss + rows)};
  if (rows > 0) {
    runtime::check_cuda(
        gpu::launch(each_row, warp_for_each(rows), stream, logits.device_address(), labels.device_address(), rows,
                    classes, loss_scale.device_address(), gradient.device_address(), out),
        "each_row");
  }
  runtime::check_cuda(gpu::launch(add_rows_up, {.grid = dim3(1), .block = dim3(threads_for_each)}, stream, out, rows,
                                  total.device_address()),
                      "add_rows_up");
}

}  // namespace gradmeter::kernels::cuda
