// SPDX-License-Identifier: Apache-2.0
// Arithmetic that host code and GPU kernels share, written once and compiled for both.
#pragma once
#include <limits>

#ifdef __CUDACC__
#define GRADMETER_HOST_DEVICE __host__ __device__
#else
#define GRADMETER_HOST_DEVICE
#endif

namespace gradmeter::core {

/// std::min and std::max by value. By reference, they would need the address of a host constant, which device code does
/// not have. If one argument is NaN, the first argument is returned.
template <class T>
GRADMETER_HOST_DEVICE constexpr T lesser(T a, T b) {
  return b < a ? b : a;
}
template <class T>
GRADMETER_HOST_DEVICE constexpr T greater(T a, T b) {
  return a < b ? b : a;
}

/// The lesser of two numbers, neither of which is NaN. It is one instruction on a GPU, where `lesser` takes two.
GRADMETER_HOST_DEVICE inline float lesser_number(float a, float b) {
#ifdef __CUDA_ARCH__
  return fminf(a, b);
#else
  return lesser(a, b);
#endif
}

/// Does what std::bit_cast does, which nvcc allows on the host only.
template <class To, class From>
GRADMETER_HOST_DEVICE constexpr To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

/// Values of std::numeric_limits as constants, since nvcc allows the functions of numeric_limits on the host only.
template <class T>
inline constexpr T quiet_nan_constant = std::numeric_limits<T>::quiet_NaN();
inline constexpr float infinite_float = std::numeric_limits<float>::infinity(),
                       largest_float = std::numeric_limits<float>::max(),
                       smallest_positive_float = std::numeric_limits<float>::denorm_min();
template <class T>
GRADMETER_HOST_DEVICE constexpr T quiet_nan() {
  return quiet_nan_constant<T>;
}

}  // namespace gradmeter::core
