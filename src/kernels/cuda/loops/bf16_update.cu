#include "kernels/cuda/loops/bf16_update.hpp"

#include "kernels/bf16_update.hpp"
#include "kernels/cuda/each.cuh"

namespace gradmeter::kernels::cuda {
namespace {

__global__ void round_each(const float* target, float* w, UpdateGate gate, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n && !gate.is_skipped()) w[i] = kernels::bf16_nearest(target[i]);
}

__global__ void add_with_carry(float* w, const float* target, float* carry, UpdateGate gate, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n && !gate.is_skipped()) kernels::bf16_kahan(w[i], target[i], carry[i]);
}

/// A thread to each block of random bits, the first and last of which may reach outside.
__global__ void round_at_random(float* w, const float* target, std::uint64_t place, UpdateGate gate, std::size_t n) {
  using Rule = Bf16Stochastic;
  if (gate.is_skipped()) return;
  const std::uint64_t block = place / Rule::each + element_of_thread();
  const std::uint64_t bits = core::random_bits(Rule::seed, gate.counted(), block);
  for (std::uint64_t at = block * Rule::each; at < (block + 1) * Rule::each; ++at) {
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
  const std::uint64_t blocks = (place + w.size() - 1) / Bf16Stochastic::each - place / Bf16Stochastic::each + 1;
  launch_each(round_at_random, "round_at_random", blocks, stream, w.device_address(), target.device_address(), place,
              gate, w.size());
}

}  // namespace gradmeter::kernels::cuda
