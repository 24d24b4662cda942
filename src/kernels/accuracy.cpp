#include "kernels/accuracy.hpp"

#include <cmath>

#include "kernels/problems/shape.hpp"

namespace gradmeter::kernels {

double relative_error(std::span<const float> value, std::span<const float> reference) {
  require_elements("relative_error: value", value.size(), reference.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const double d = double{value[i]} - double{reference[i]};
    difference += d * d;
    norm += double{reference[i]} * double{reference[i]};
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

}  // namespace gradmeter::kernels
