// SPDX-License-Identifier: Apache-2.0
// Every step of the arithmetic is rounded, as on the host: this file is compiled without fused multiply-adds.
#include "core/random.hpp"
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/row_sums.cuh"
#include "kernels/pointwise/bf16_weights.hpp"
#include "kernels/pointwise/gpu_kernels.hpp"
#include "kernels/pointwise/updates.hpp"

namespace gradmeter::kernels::cuda {
namespace {

__global__ void mask_gradient(const float* activation, float* gradient, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n && !(activation[i] > 0)) gradient[i] = 0;
}

__global__ void multiply(float* values, float factor, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) values[i] = values[i] * factor;
}

template <class From, class To>
__global__ void convert(const From* from, To* to, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) store(load(from + i), to + i);
}

template <class From, class To>
void launch_convert(const char* what, DeviceSpan<const From> from, DeviceSpan<To> to, cudaStream_t stream) {
  check_lengths(what, to.size(), from.size());
  launch_each(convert<From, To>, "convert", to.size(), stream, from.device_address(), to.device_address(), to.size());
}

template <class T>
__global__ void descend(T* w, const T* g, float step, UpdateGate gate, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n && !gate.is_skipped()) store(load(w + i) - step * load(g + i), w + i);
}

template <class T>
__global__ void descend_momentum(T* w, T* v, const T* g, MomentumParameters p, UpdateGate gate, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n || gate.is_skipped()) return;
  const float gradient = load(g + i), velocity = p.mu * load(v + i) + gradient;
  const float direction = p.nesterov ? gradient + p.mu * velocity : velocity;
  store(velocity, v + i);
  store(load(w + i) - p.step * direction, w + i);
}

__global__ void find_rates(AdamParameters p, UpdateGate gate, AdamRates* rates) {
  const std::uint64_t t = gate.number_without_skipped();
  *rates = {adam_rate(p.step, p.beta1, p.beta2, t), adam_epsilon(p.epsilon, p.beta2, t)};
}

/// device_rates: the rates in device memory; null: they are in `host_rates`.
template <class T>
__global__ void descend_adam(T* w, T* m, T* v, const T* g, AdamParameters p, AdamRates host_rates,
                             const AdamRates* device_rates, float decay_factor, UpdateGate gate, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i >= n || gate.is_skipped()) return;
  const AdamRates rates = device_rates ? *device_rates : host_rates;
  const float gradient = load(g + i);
  const float first = p.beta1 * load(m + i) + (1 - p.beta1) * gradient;
  const float second = p.beta2 * load(v + i) + gradient * gradient * (1 - p.beta2);
  store(first, m + i);
  store(second, v + i);
  T decayed;
  store(load(w + i) * decay_factor, &decayed);  // rounds, as if the decay were a pass of its own
  store(load(&decayed) - first / (sqrtf(second) + rates.epsilon) * rates.rate, w + i);
}

template <class T>
void launch_sgd(DeviceSpan<T> w, DeviceSpan<const T> g, float step, UpdateGate gate, cudaStream_t stream) {
  check_lengths("sgd: g", g.size(), w.size());
  launch_each(descend<T>, "descend", w.size(), stream, w.device_address(), g.device_address(), step, gate, w.size());
}

template <class T>
void launch_momentum(DeviceSpan<T> w, DeviceSpan<T> v, DeviceSpan<const T> g, MomentumParameters p, UpdateGate gate,
                     cudaStream_t stream) {
  check_lengths("momentum: v", v.size(), w.size());
  check_lengths("momentum: g", g.size(), w.size());
  launch_each(descend_momentum<T>, "descend_momentum", w.size(), stream, w.device_address(), v.device_address(),
              g.device_address(), p, gate, w.size());
}

template <class T>
void launch_adam(DeviceSpan<T> w, DeviceSpan<T> m, DeviceSpan<T> v, DeviceSpan<const T> g, AdamParameters p,
                 const AdamRates* device_rates, float decay_factor, UpdateGate gate, cudaStream_t stream) {
  check_lengths("adam: m", m.size(), w.size());
  check_lengths("adam: v", v.size(), w.size());
  check_lengths("adam: g", g.size(), w.size());
  launch_each(descend_adam<T>, "descend_adam", w.size(), stream, w.device_address(), m.device_address(),
              v.device_address(), g.device_address(), p, AdamRates{p.rate(), p.epsilon}, device_rates, decay_factor,
              gate, w.size());
}

}  // namespace

void relu_backward(DeviceSpan<const float> activation, DeviceSpan<float> gradient, cudaStream_t stream) {
  check_lengths("relu_backward: gradient", gradient.size(), activation.size());
  launch_each(mask_gradient, "mask_gradient", gradient.size(), stream, activation.device_address(),
              gradient.device_address(), gradient.size());
}

std::size_t column_sums_workspace(std::size_t rows, std::size_t columns) {
  std::size_t floats = 0;
  while (rows > rows_of_block) {
    rows = (rows + rows_of_block - 1) / rows_of_block;
    floats += rows * columns;
  }
  return floats;
}

void column_sums(DeviceSpan<const float> matrix, std::size_t columns, DeviceSpan<float> out,
                 DeviceSpan<float> workspace, cudaStream_t stream) {
  check_lengths("column_sums: out", out.size(), columns);
  const std::size_t rows = columns == 0 ? 0 : matrix.size() / columns;
  check_lengths("column_sums: matrix", matrix.size(), rows * columns);
  launch_column_sums("column_sums", MatrixRows{matrix.device_address(), columns}, rows, columns,
                     SumsTo{out.device_address()}, workspace, stream);
}

void scale(DeviceSpan<float> values, float factor, cudaStream_t stream) {
  launch_each(multiply, "multiply", values.size(), stream, values.device_address(), factor, values.size());
}

void to_floats(DeviceSpan<const Bf16> from, DeviceSpan<float> to, cudaStream_t stream) {
  launch_convert("to_floats: to", from, to, stream);
}
void to_bf16(DeviceSpan<const float> from, DeviceSpan<Bf16> to, cudaStream_t stream) {
  launch_convert("to_bf16: to", from, to, stream);
}
void to_floats(DeviceSpan<const Fp16> from, DeviceSpan<float> to, cudaStream_t stream) {
  launch_convert("to_floats: to", from, to, stream);
}
void to_fp16(DeviceSpan<const float> from, DeviceSpan<Fp16> to, cudaStream_t stream) {
  launch_convert("to_fp16: to", from, to, stream);
}

void sgd(DeviceSpan<float> w, DeviceSpan<const float> g, float step, UpdateGate gate, cudaStream_t stream) {
  launch_sgd(w, g, step, gate, stream);
}
void sgd(DeviceSpan<Bf16> w, DeviceSpan<const Bf16> g, float step, UpdateGate gate, cudaStream_t stream) {
  launch_sgd(w, g, step, gate, stream);
}
void momentum(DeviceSpan<float> w, DeviceSpan<float> v, DeviceSpan<const float> g, MomentumParameters p,
              UpdateGate gate, cudaStream_t stream) {
  launch_momentum(w, v, g, p, gate, stream);
}
void momentum(DeviceSpan<Bf16> w, DeviceSpan<Bf16> v, DeviceSpan<const Bf16> g, MomentumParameters p, UpdateGate gate,
              cudaStream_t stream) {
  launch_momentum(w, v, g, p, gate, stream);
}
void adam(DeviceSpan<float> w, DeviceSpan<float> m, DeviceSpan<float> v, DeviceSpan<const float> g, AdamParameters p,
          float decay_factor, cudaStream_t stream) {
  launch_adam(w, m, v, g, p, nullptr, decay_factor, {}, stream);
}
void adam(DeviceSpan<Bf16> w, DeviceSpan<Bf16> m, DeviceSpan<Bf16> v, DeviceSpan<const Bf16> g, AdamParameters p,
          float decay_factor, cudaStream_t stream) {
  launch_adam(w, m, v, g, p, nullptr, decay_factor, {}, stream);
}

void adam_step(DeviceSpan<float> w, DeviceSpan<float> m, DeviceSpan<float> v, DeviceSpan<const float> g,
               AdamParameters p, float decay_factor, UpdateGate gate, DeviceSpan<AdamRates> rates,
               cudaStream_t stream) {
  check_lengths("adam_step: rates", rates.size(), 1);
  runtime::check_cuda(
      gpu::launch(find_rates, {.grid = dim3(1), .block = dim3(1)}, stream, p, gate, rates.device_address()),
      "find_rates");
  launch_adam(w, m, v, g, p, rates.device_address(), decay_factor, gate, stream);
}

namespace {

__global__ void round_each(const float* target, float* w, UpdateGate gate, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n && !gate.is_skipped()) w[i] = kernels::bf16_nearest(target[i]);
}

__global__ void add_with_carry(float* w, const float* target, float* carry, UpdateGate gate, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n && !gate.is_skipped()) kernels::bf16_kahan(w[i], target[i], carry[i]);
}

/// A thread handles a block of random bits, which serves Bf16Stochastic::numbers_per_draw neighbours. The first and the
/// last block may reach beyond w.
__global__ void round_at_random(float* w, const float* target, std::uint64_t place, UpdateGate gate, std::size_t n) {
  using Rule = Bf16Stochastic;
  if (gate.is_skipped()) return;
  const std::uint64_t block = place / Rule::numbers_per_draw + element_of_thread();
  const std::uint64_t bits = core::random_bits(Rule::seed, gate.number_without_skipped(), block);
  for (std::uint64_t at = block * Rule::numbers_per_draw; at < (block + 1) * Rule::numbers_per_draw; ++at) {
    if (at < place || at - place >= n) continue;
    w[at - place] = Rule::rounded(target[at - place], bits, at);
  }
}

}  // namespace

void bf16_nearest(DeviceSpan<const float> target, DeviceSpan<float> w, UpdateGate gate, cudaStream_t stream) {
  check_lengths("bf16_nearest: w", w.size(), target.size());
  launch_each(round_each, "round_each", w.size(), stream, target.device_address(), w.device_address(), gate, w.size());
}

void bf16_kahan(DeviceSpan<float> w, DeviceSpan<const float> target, DeviceSpan<float> carry, UpdateGate gate,
                cudaStream_t stream) {
  check_lengths("bf16_kahan: target", target.size(), w.size());
  check_lengths("bf16_kahan: carry", carry.size(), w.size());
  launch_each(add_with_carry, "add_with_carry", w.size(), stream, w.device_address(), target.device_address(),
              carry.device_address(), gate, w.size());
}

void bf16_stochastic(DeviceSpan<float> w, DeviceSpan<const float> target, std::uint64_t place, UpdateGate gate,
                     cudaStream_t stream) {
  check_lengths("bf16_stochastic: target", target.size(), w.size());
  if (w.empty()) return;
  const std::uint64_t blocks =
      (place + w.size() - 1) / Bf16Stochastic::numbers_per_draw - place / Bf16Stochastic::numbers_per_draw + 1;
  launch_each(round_at_random, "round_at_random", blocks, stream, w.device_address(), target.device_address(), place,
              gate, w.size());
}

namespace {

__global__ void divide_each(float* g, const float* scale, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) g[i] *= 1 / *scale;
}

/// Each warp that finds an infinity or a NaN writes once; all write the same value.
__global__ void find_not_finite(const float* g, LossScaleCounts* counts, std::size_t n) {
  constexpr std::uint32_t exponent = 0x7f800000;
  const std::size_t i = element_of_thread();
  const bool found = i < n && (__float_as_uint(g[i]) & exponent) == exponent;
  if (__any_sync(~0u, found ? 1 : 0) != 0 && threadIdx.x % 32 == 0)
    atomicExch(reinterpret_cast<unsigned long long*>(&counts->skips_step), 1ull);
}

__global__ void adapt(float* scale, LossScaleCounts* counts, std::int64_t growth_interval) {
  kernels::end_step(*scale, *counts, growth_interval);
}

}  // namespace

void unscale(DeviceSpan<float> gradients, DeviceSpan<const float> scale, cudaStream_t stream) {
  check_lengths("unscale: scale", scale.size(), 1);
  launch_each(divide_each, "divide_each", gradients.size(), stream, gradients.device_address(), scale.device_address(),
              gradients.size());
}

void note_non_finite(DeviceSpan<const float> gradients, DeviceSpan<LossScaleCounts> counts, cudaStream_t stream) {
  check_lengths("check_finite: counts", counts.size(), 1);
  launch_each(find_not_finite, "find_not_finite", gradients.size(), stream, gradients.device_address(),
              counts.device_address(), gradients.size());
}

void end_step(DeviceSpan<float> scale, DeviceSpan<LossScaleCounts> counts, std::int64_t growth_interval,
              cudaStream_t stream) {
  check_lengths("end_step: scale", scale.size(), 1);
  check_lengths("end_step: counts", counts.size(), 1);
  runtime::check_cuda(gpu::launch(adapt, {.grid = dim3(1), .block = dim3(1)}, stream, scale.device_address(),
                                  counts.device_address(), growth_interval),
                      "adapt");
}

}  // namespace gradmeter::kernels::cuda
