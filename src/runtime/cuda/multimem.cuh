// SPDX-License-Identifier: Apache-2.0
// Instructions on multicast memory, whose address stands for the same bytes on all GPUs (runtime/cuda/multicast.hpp).
// One instruction reads 16 bytes at the same offset in the memory of every GPU, and gives their sum number by number:
// as fp32, or as fp16 or bf16, which are added in fp32. The hardware chooses the order of the addends. Other types and
// operations are not used here.
// Source: PTX ISA 8.1, "multimem.ld_reduce, multimem.st, multimem.red"
#pragma once
#include <cstddef>
#include <cstdint>

#include "runtime/cuda/launch.hpp"

#ifdef GRADMETER_CUDA_EMULATED
#include <cuda_emulator/multicast.hpp>

#include "core/element.hpp"
#endif

namespace gradmeter::gpu {

/// The formats of the numbers that a switch adds.
enum class SwitchSum : std::uint8_t { f32, f16, bf16 };

#ifdef GRADMETER_CUDA_EMULATED
template <SwitchSum format>
uint4 load_sum(const std::byte* all) {
  using core::Element;
  constexpr Element e = format == SwitchSum::f32   ? Element::f32
                        : format == SwitchSum::f16 ? Element::f16
                                                   : Element::bf16;
  const std::size_t size = core::size_of(e);
  std::byte out[16];
  for (std::size_t at = 0; at < 16; at += size) {
    float sum = 0;
    for (const std::byte* const part : cuda_emulator::parts_behind(all))
      sum += static_cast<float>(core::load(e, part + at));
    core::store(e, out + at, sum);
  }
  uint4 words;
  std::memcpy(&words, out, sizeof words);
  return words;
}
inline void store_to_all(std::byte* all, const uint4& words) {
  for (std::byte* const part : cuda_emulator::parts_behind(all)) std::memcpy(part, &words, sizeof words);
}
inline void order_aliases() { cuda_emulator::fence(); }
#else
/// The sum over all GPUs of 16 bytes at a multicast address that is aligned to 16.
template <SwitchSum format>
__device__ inline uint4 load_sum(const std::byte* all) {
  uint4 v{};
#if __CUDA_ARCH__ >= 900
  if constexpr (format == SwitchSum::f32) {
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(all)
                 : "memory");
  } else if constexpr (format == SwitchSum::f16) {
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(all)
                 : "memory");
  } else {
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(all)
                 : "memory");
  }
#endif
  return v;
}
/// Stores 16 bytes into the memory of all GPUs.
__device__ inline void store_to_all(std::byte* all, const uint4& v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(all), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
#endif
}
/// Keeps this thread's accesses to the same memory in order, even if some use the GPU's own address and others the
/// multicast address.
/// Source: PTX ISA, "Memory consistency model", proxies
__device__ inline void order_aliases() { asm volatile("fence.proxy.alias;" ::: "memory"); }
#endif

}  // namespace gradmeter::gpu
