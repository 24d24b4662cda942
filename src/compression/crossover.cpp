#include "compression/crossover.hpp"

namespace gradmeter::compression {

core::BytesPerSecond exchange_speed(const CodecSpeeds& v, int ranks) {
  if (!(v.encode.value > 0) || !(v.decode.value > 0) || !(v.add.value > 0)) return {0};
  const double p = ranks;
  return {1 / ((1 + 1 / p) / v.encode.value + (p - 1) / p / v.add.value + 1 / v.decode.value)};
}

core::BytesPerSecond crossover_link(const CodecSpeeds& v, int ranks, double wire_bits, double baseline_bits) {
  if (ranks < 2 || !(wire_bits < baseline_bits)) return {0};
  const double p = ranks;
  return exchange_speed(v, ranks) * (2 * (p - 1) / p * (baseline_bits - wire_bits) / 32);
}

}  // namespace gradmeter::compression
