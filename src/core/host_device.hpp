// SPDX-License-Identifier: Apache-2.0
// Arithmetic that the host and a GPU's kernels share: each rule is written once and compiled for both.
#pragma once
#ifdef __CUDACC__
#define GRADMETER_HOST_DEVICE __host__ __device__
#else
#define GRADMETER_HOST_DEVICE
#endif

namespace gradmeter::core {

/// std::min and std::max by value: a reference to a constant has no address on a GPU. If one argument is NaN, the first
/// is returned.
template <class T>
GRADMETER_HOST_DEVICE constexpr T lesser(T a, T b) {
  return b < a ? b : a;
}
template <class T>
GRADMETER_HOST_DEVICE constexpr T greater(T a, T b) {
  return a < b ? b : a;
}

}  // namespace gradmeter::core
