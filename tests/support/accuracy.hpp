// SPDX-License-Identifier: Apache-2.0
// How far a kernel's answer is from the reference's.
#pragma once
#include <cmath>
#include <span>

#include "kernels/host/memory.hpp"

namespace gradmeter::test {

/// ‖value − reference‖ / ‖reference‖, Frobenius norms in float64: shows one wrong element, and does not exaggerate a
/// small one among large ones. 0 for equal buffers, NaN or infinity where the value is not finite.
/// Shape:  value [n], reference [n].
/// Errors: std::invalid_argument when they differ in length.
inline double relative_error(std::span<const float> value, std::span<const float> reference) {
  kernels::require_elements("relative_error: value", value.size(), reference.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const double d = double{value[i]} - double{reference[i]};
    difference += d * d;
    norm += double{reference[i]} * double{reference[i]};
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

}  // namespace gradmeter::test
