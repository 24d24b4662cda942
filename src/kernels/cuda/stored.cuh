// Numbers as memory holds them and as arithmetic has them: fp32, and 16-bit formats rounded to nearest even.
#pragma once
#include <bit>
#include <cstdint>

#include "core/small_float.hpp"
#include "kernels/pointwise.hpp"

namespace gradmeter::kernels::cuda {

__device__ inline float load(const float* from) { return *from; }
__device__ inline float load(const Bf16* from) { return std::bit_cast<float>(static_cast<std::uint32_t>(*from) << 16); }
__device__ inline float load(const Fp16* from) {
  return core::to_float(core::fp16_format, static_cast<std::uint16_t>(*from));
}
__device__ inline void store(float v, float* to) { *to = v; }
__device__ inline void store(float v, Bf16* to) { *to = Bf16{core::rounded_code<core::bf16_format>(v)}; }
__device__ inline void store(float v, Fp16* to) { *to = Fp16{core::rounded_code<core::fp16_format>(v)}; }

}  // namespace gradmeter::kernels::cuda
