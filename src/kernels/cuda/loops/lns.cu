#include "kernels/cuda/loops/lns.hpp"

#include <limits>

#include "kernels/cuda/each.cuh"
#include "kernels/cuda/lns_sums.cuh"
#include "kernels/lns/lns.hpp"

namespace gradmeter::kernels::cuda {
namespace {

/// A system's tables as kernels are given them.
struct System {
  LnsConversion conversion;
  LnsSums sums;
  const std::uint16_t* exponentials;

  explicit System(const DeviceLnsTables& t)
      : conversion(t.conversion), sums(LnsSums::of(t.doubled)), exponentials(t.exponential.device_address()) {}
  __device__ Lns16 encode(float x) const { return kernels::lns_encode(conversion, x, nullptr); }
  __device__ float decode(Lns16 x) const { return kernels::lns_decode(conversion, x); }
  __device__ Lns16 add(Lns16 x, Lns16 y) const { return kernels::lns_add(x, y, sums, nullptr); }
  /// Of a number that is not above zero.
  __device__ Lns16 exponential(Lns16 x) const { return {exponentials[x.code()]}; }
};

__global__ void lns_round_each(System s, float* w, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) w[i] = s.decode(s.encode(w[i]));
}

__global__ void lns_add_each(System s, float* w, const float* target, float* carry, UpdateGate gate, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n || gate.is_skipped()) return;
  lns_change(s.conversion, s.sums, w[i], carry ? carry + i : nullptr, s.encode(target[i] - w[i]));
}

__global__ void lns_descend_each(System s, float* w, const float* g, Lns16 factor, float* carry, UpdateGate gate,
                                 std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n || gate.is_skipped()) return;
  const Lns16 change = lns_multiply(s.encode(g[i]), factor, nullptr);
  lns_change(s.conversion, s.sums, w[i], carry ? carry + i : nullptr, change);
}

struct LnsRows {
  double* loss;
  std::uint64_t* correct;
  Lns16* probabilities;  ///< [rows × classes]
};

/// The first of the largest; NaN is never larger.
__device__ std::size_t place_of_largest(const float* in, std::size_t classes) {
  std::size_t top = 0;
  for (std::size_t j = 1; j < classes; ++j)
    if (in[top] < in[j]) top = j;
  return top;
}

/// Writes a row's probabilities.
__device__ void softmax(const System& s, const float* in, std::size_t top, std::size_t classes, Lns16* p) {
  const Lns16 largest = s.encode(in[top]);
  Lns16 sum;
  for (std::size_t j = 0; j < classes; ++j) {
    p[j] = s.exponential(s.add(s.encode(in[j]), -largest));
    sum = s.add(sum, p[j]);
  }
  for (std::size_t j = 0; j < classes; ++j) p[j] = lns_divide(p[j], sum, nullptr);
}

/// A thread to a row: each sum depends on the one before.
__global__ void lns_each_row(System s, const float* logits, const std::int32_t* labels, std::size_t rows,
                             std::size_t classes, const float* loss_scale, float* gradient, LnsRows out) {
  const std::size_t row = element_of_thread();
  if (row >= rows) return;
  const float* in = logits + row * classes;
  Lns16* p = out.probabilities + row * classes;
  const auto label = static_cast<std::size_t>(labels[row]);
  const std::size_t top = place_of_largest(in, classes);
  softmax(s, in, top, classes, p);
  out.loss[row] = label < classes ? lns_negative_log(s.conversion.fraction_bits, p[label])
                                  : std::numeric_limits<double>::quiet_NaN();
  out.correct[row] = top == label ? 1 : 0;
  if (!gradient) return;
  const Lns16 factor = s.encode((loss_scale ? *loss_scale : 1.0f) / static_cast<float>(rows));
  if (label < classes) p[label] = s.add(p[label], -Lns16::from(false, Lns16::one));
  for (std::size_t j = 0; j < classes; ++j) gradient[row * classes + j] = s.decode(lns_multiply(p[j], factor, nullptr));
}

/// One thread, in the order of the rows.
__global__ void lns_add_rows_up(LnsRows rows, std::size_t count, CrossEntropy* total) {
  CrossEntropy all{0, 0};
  for (std::size_t r = 0; r < count; ++r) {
    all.loss_sum += rows.loss[r];
    all.correct += static_cast<std::size_t>(rows.correct[r]);
  }
  *total = all;
}

void check_change(const char* what, DeviceSpan<float> w, DeviceSpan<const float> other, DeviceSpan<float> carry) {
  check_lengths(what, other.size(), w.size());
  if (!carry.empty()) check_lengths(what, carry.size(), w.size());
}

}  // namespace

void lns_round(const DeviceLnsTables& t, DeviceSpan<float> w, cudaStream_t stream) {
  launch_each(lns_round_each, "lns_round_each", w.size(), stream, System(t), w.device_address(), w.size());
}

void lns_add(const DeviceLnsTables& t, DeviceSpan<float> w, DeviceSpan<const float> target, DeviceSpan<float> carry,
             UpdateGate gate, cudaStream_t stream) {
  check_change("lns_add: target or carry", w, target, carry);
  launch_each(lns_add_each, "lns_add_each", w.size(), stream, System(t), w.device_address(), target.device_address(),
              carry.device_address(), gate, w.size());
}

void lns_descend(const DeviceLnsTables& t, DeviceSpan<float> w, DeviceSpan<const float> g, float size,
                 DeviceSpan<float> carry, UpdateGate gate, cudaStream_t stream) {
  check_change("lns_descend: g or carry", w, g, carry);
  const Lns16 factor = Lns(t.conversion.fraction_bits).encode(-double{size});
  launch_each(lns_descend_each, "lns_descend_each", w.size(), stream, System(t), w.device_address(), g.device_address(),
              factor, carry.device_address(), gate, w.size());
}

std::size_t lns_cross_entropy_workspace(std::size_t rows, std::size_t classes) {
  return rows * (sizeof(double) + sizeof(std::uint64_t) + classes * sizeof(Lns16));
}

void lns_softmax_cross_entropy(const DeviceLnsTables& t, DeviceSpan<const float> logits,
                               DeviceSpan<const std::int32_t> labels, std::size_t classes,
                               DeviceSpan<const float> loss_scale, DeviceSpan<float> gradient,
                               DeviceSpan<CrossEntropy> total, DeviceSpan<std::byte> workspace, cudaStream_t stream) {
  const std::size_t rows = labels.size();
  check_lengths("lns_softmax_cross_entropy: logits", logits.size(), rows * classes);
  if (!gradient.empty()) check_lengths("lns_softmax_cross_entropy: gradient", gradient.size(), logits.size());
  if (!loss_scale.empty()) check_lengths("lns_softmax_cross_entropy: loss_scale", loss_scale.size(), 1);
  check_lengths("lns_softmax_cross_entropy: total", total.size(), 1);
  check_lengths("lns_softmax_cross_entropy: workspace", workspace.size(), lns_cross_entropy_workspace(rows, classes));
  auto* loss = reinterpret_cast<double*>(workspace.device_address());
  auto* correct = reinterpret_cast<std::uint64_t*>(loss + rows);
  const LnsRows out{loss, correct, reinterpret_cast<Lns16*>(correct + rows)};
  launch_each(lns_each_row, "lns_each_row", rows, stream, System(t), logits.device_address(), labels.device_address(),
              rows, classes, loss_scale.device_address(), gradient.device_address(), out);
  runtime::check_cuda(
      gpu::launch(lns_add_rows_up, {.grid = dim3(1), .block = dim3(1)}, stream, out, rows, total.device_address()),
      "lns_add_rows_up");
}

}  // namespace gradmeter::kernels::cuda
