// Arithmetic that the host and a GPU's kernels share: one description of a rule, compiled for both.
#pragma once
#ifdef __CUDACC__
#define GRADMETER_HOST_DEVICE __host__ __device__
#else
#define GRADMETER_HOST_DEVICE
#endif

namespace gradmeter::core {

/// std::min and std::max of copies: a reference to a constant has no address on a GPU. Of a NaN and a number: the
/// first.
template <class T>
GRADMETER_HOST_DEVICE constexpr T lesser(T a, T b) {
  return b < a ? b : a;
}
template <class T>
GRADMETER_HOST_DEVICE constexpr T greater(T a, T b) {
  return a < b ? b : a;
}

}  // namespace gradmeter::core
