#include "kernels/quantization.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/format.hpp"

namespace gradmeter::kernels {

Quantization quantize_range(float least, float greatest) {
  if (!(least <= 0 && greatest >= 0 && std::isfinite(greatest - least)))
    throw std::invalid_argument(fmt::format("no range of activations: {} to {}", least, greatest));
  if (least == greatest) return {};
  const float quantum = (greatest - least) / 255;
  return {.quantum = quantum, .zero_point = static_cast<int>(std::lround(-least / quantum))};
}

void raise_to_largest(std::span<const float> weights, std::size_t inner, std::span<float> largest) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    float& l = largest[i / inner % largest.size()];
    l = std::max(l, std::fabs(weights[i]));
  }
}

void to_weight_quanta(std::span<float> largest) {
  const auto steps = static_cast<float>(largest_int8_weight());
  for (float& l : largest) l = l > 0 ? l / steps : 1.0F;
}

float rnn_weights_scale(const RnnShape& s) {
  const double exact = largest_int8_weight() * std::sqrt(static_cast<double>(s.hidden)) / 6;
  return static_cast<float>(std::exp2(std::floor(std::log2(exact))));
}

}  // namespace gradmeter::kernels
