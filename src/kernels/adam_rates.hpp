// What the number of an update makes of Adam's parameters, for the host and for a GPU's threads.
#pragma once
#include <cmath>
#include <cstdint>

#include "core/host_device.hpp"
#include "kernels/pointwise.hpp"

namespace gradmeter::kernels {

/// By squaring: a chain of products has the same bits on the host and on a GPU, whose pow is another. Off by n·2^-52 of
/// itself at most.
GRADMETER_HOST_DEVICE constexpr double power(double x, std::uint64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1, x *= x)
    if ((n & 1) != 0) result *= x;
  return result;
}
/// 1 − beta^t, by which an average that began with zero is too small.
GRADMETER_HOST_DEVICE constexpr double adam_share(float beta, std::uint64_t t) { return 1 - power(double{beta}, t); }

struct AdamRates {
  float rate, epsilon;
};
/// epsilon as algorithm 1 has it; `AdamParameters` has that of the end of section 2.
GRADMETER_HOST_DEVICE inline float adam_rate(float step, float beta1, float beta2, std::uint64_t t) {
  return static_cast<float>(double{step} * sqrt(adam_share(beta2, t)) / adam_share(beta1, t));
}
GRADMETER_HOST_DEVICE inline float adam_epsilon(float epsilon, float beta2, std::uint64_t t) {
  return epsilon * static_cast<float>(sqrt(adam_share(beta2, t)));
}

}  // namespace gradmeter::kernels
