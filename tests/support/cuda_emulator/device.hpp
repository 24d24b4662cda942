// SPDX-License-Identifier: Apache-2.0
// CUDA's device language for g++: the threads of a block are fibers, so barriers and warp operations are exact.
#pragma once
#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#undef __shared__
#define __shared__ static_assert(false, "write GPU_SHARED(type, name, extent) or gpu::dynamic_shared<T>()");

#undef __launch_bounds__
#define __launch_bounds__(...)

namespace cuda_emulator {

using Site = std::source_location;

/// Of the thread that runs.
struct Place {
  uint3 thread = {}, block = {};
  dim3 block_size = {}, grid_size = {};
  unsigned lane = 0;
};
extern const Place* place;

void block_barrier(Site);
void grid_barrier(Site);
/// Lets other threads run.
void yield();
/// One thread runs at a time, so all see the same memory in the same order; only the thread sanitizer learns of it.
void fence();
/// Of the block, by key; full of noise at first.
void* shared_memory(const void* key, std::size_t bytes);
void* dynamic_shared_memory();
/// What no call reports: hangs, wrong masks, barriers that not all threads reach. See emulator.hpp.
void report(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Deposits `value` and waits until all lanes of the mask have; their deposits, by lane, until the thread's next call.
/// `orders`: what the lanes wrote before is there after.
const std::uint64_t* exchange(unsigned mask, std::uint64_t value, const char* operation, Site, bool orders = false);

using Call = std::function<void()>;
/// Takes a launch's arguments, which are values of the kernel's parameters, and gives what runs as one thread of it.
using Binder = Call (*)(const void* function, void** arguments);
void know_kernel(const void* function, Binder);

template <class... P>
Call bind(const void* function, void** arguments) {
  const auto kernel = reinterpret_cast<void (*)(P...)>(const_cast<void*>(function));
  return [&]<std::size_t... i>(std::index_sequence<i...>)->Call {
    return [kernel, values = std::tuple<P...>(*static_cast<P*>(arguments[i])...)] { std::apply(kernel, values); };
  }
  (std::index_sequence_for<P...>{});
}

template <class T>
std::uint64_t packed(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T unpacked(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// What `source` deposits. Errors: a report when it is not in the mask.
template <class T>
T from_lane(unsigned mask, T value, unsigned source, const char* operation, Site site) {
  const std::uint64_t* all = exchange(mask, packed(value), operation, site);
  if ((mask >> source & 1) == 0) {
    report("%s at line %u reads lane %u, which is not in its mask %08x", operation, site.line(), source, mask);
  }
  return unpacked<T>(all[source]);
}

/// f over the deposits of the mask's lanes, in their order.
template <class T, class F>
T combined(unsigned mask, T value, const char* operation, Site site, F f) {
  const std::uint64_t* all = exchange(mask, packed(value), operation, site);
  bool is_first = true;
  T result{};
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const T other = unpacked<T>(all[lane]);
    result = is_first ? other : f(result, other);
    is_first = false;
  }
  return result;
}

/// Relaxed, as on the device.
template <class T, class F>
T atomically(T* at, F f) {
  T old;
  __atomic_load(at, &old, __ATOMIC_RELAXED);
  for (T next = f(old); !__atomic_compare_exchange(at, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);) {
    next = f(old);
  }
  return old;
}

}  // namespace cuda_emulator

#define threadIdx (cuda_emulator::place->thread)
#define blockIdx (cuda_emulator::place->block)
#define blockDim (cuda_emulator::place->block_size)
#define gridDim (cuda_emulator::place->grid_size)
constexpr int warpSize = 32;

inline void __syncthreads(cuda_emulator::Site s = cuda_emulator::Site::current()) { cuda_emulator::block_barrier(s); }
inline void __syncwarp(unsigned mask = ~0u, cuda_emulator::Site s = cuda_emulator::Site::current()) {
  cuda_emulator::exchange(mask, 0, "__syncwarp", s, true);
}
inline void __threadfence_block() { cuda_emulator::fence(); }
inline void __threadfence() { cuda_emulator::fence(); }
inline void __threadfence_system() { cuda_emulator::fence(); }
inline void __nanosleep(unsigned) { cuda_emulator::yield(); }

template <class T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32, cuda_emulator::Site s = cuda_emulator::Site::current()) {
  const unsigned group = cuda_emulator::place->lane & ~(static_cast<unsigned>(width) - 1);
  return cuda_emulator::from_lane(mask, v, group | (static_cast<unsigned>(source) & (static_cast<unsigned>(width) - 1)),
                                  "__shfl_sync", s);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int with, int width = 32,
                  cuda_emulator::Site s = cuda_emulator::Site::current()) {
  const unsigned lane = cuda_emulator::place->lane, other = lane ^ static_cast<unsigned>(with);
  const bool beyond = other > (lane | (static_cast<unsigned>(width) - 1));
  return cuda_emulator::from_lane(mask, v, beyond ? lane : other, "__shfl_xor_sync", s);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32,
                   cuda_emulator::Site s = cuda_emulator::Site::current()) {
  const unsigned lane = cuda_emulator::place->lane, w = static_cast<unsigned>(width);
  return cuda_emulator::from_lane(mask, v, (lane & (w - 1)) + by >= w ? lane : lane + by, "__shfl_down_sync", s);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32,
                 cuda_emulator::Site s = cuda_emulator::Site::current()) {
  const unsigned lane = cuda_emulator::place->lane, w = static_cast<unsigned>(width);
  return cuda_emulator::from_lane(mask, v, (lane & (w - 1)) < by ? lane : lane - by, "__shfl_up_sync", s);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, cuda_emulator::Site s = cuda_emulator::Site::current()) {
  const unsigned bit = predicate != 0 ? 1u << cuda_emulator::place->lane : 0;
  return cuda_emulator::combined(mask, bit, "__ballot_sync", s, [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int p, cuda_emulator::Site s = cuda_emulator::Site::current()) {
  return __ballot_sync(mask, p, s) != 0;
}
inline int __all_sync(unsigned mask, int p, cuda_emulator::Site s = cuda_emulator::Site::current()) {
  return __ballot_sync(mask, p, s) == mask;
}
template <class T>
T __reduce_add_sync(unsigned mask, T v, cuda_emulator::Site s = cuda_emulator::Site::current()) {
  static_assert(sizeof(T) == 4 && std::is_integral_v<T>);
  return cuda_emulator::combined(mask, v, "__reduce_add_sync", s, [](T a, T b) { return static_cast<T>(a + b); });
}
template <class T>
T __reduce_max_sync(unsigned mask, T v, cuda_emulator::Site s = cuda_emulator::Site::current()) {
  static_assert(sizeof(T) == 4 && std::is_integral_v<T>);
  return cuda_emulator::combined(mask, v, "__reduce_max_sync", s, [](T a, T b) { return a > b ? a : b; });
}

template <class T>
T atomicAdd(T* at, std::type_identity_t<T> v) {
  return cuda_emulator::atomically(at, [v](T old) { return static_cast<T>(old + v); });
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> v) {
  return cuda_emulator::atomically(at, [v](T old) { return old > v ? old : v; });
}
template <class T>
T atomicMin(T* at, std::type_identity_t<T> v) {
  return cuda_emulator::atomically(at, [v](T old) { return old < v ? old : v; });
}
template <class T>
T atomicOr(T* at, std::type_identity_t<T> v) {
  return cuda_emulator::atomically(at, [v](T old) { return static_cast<T>(old | v); });
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> v) {
  return cuda_emulator::atomically(at, [v](T) { return v; });
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  return cuda_emulator::atomically(at, [=](T old) { return old == expected ? v : old; });
}

// Rounded to nearest; compiled with -ffp-contract=off, so that products and sums stay two roundings.
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline int __float_as_int(float v) { return std::bit_cast<int>(v); }
inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __popcll(unsigned long long v) { return std::popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return std::countl_zero(static_cast<unsigned>(v)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }
template <class T>
T __ldg(const T* p) {
  return *p;
}
