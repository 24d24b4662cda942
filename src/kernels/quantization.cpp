#include "kernels/quantization.hpp"

#include <cmath>

namespace gradmeter::kernels {

float rnn_weights_scale(const RnnShape& s) {
  const double exact = largest_int8_weight() * std::sqrt(static_cast<double>(s.hidden)) / 6;
  return static_cast<float>(std::exp2(std::floor(std::log2(exact))));
}

}  // namespace gradmeter::kernels
