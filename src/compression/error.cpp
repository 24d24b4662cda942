#include "compression/error.hpp"

namespace gradmeter::compression {

double squared_norm(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

double squared_error(std::span<const float> decoded, std::span<const float> exact) {
  double sum = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double difference = static_cast<double>(decoded[i]) - static_cast<double>(exact[i]);
    sum += difference * difference;
  }
  return sum;
}

}  // namespace gradmeter::compression
