// SPDX-License-Identifier: Apache-2.0
#include "compression/crossover.hpp"

#include <stdexcept>

namespace gradmeter::compression {

core::BytesPerSecond coding_rate(const core::CodecRates& rates, int ranks) {
  if (!(rates.encode > 0) || !(rates.decode > 0) || !(rates.add > 0)) return {0};
  const double p = ranks;
  return {1 / ((1 + 1 / p) / rates.encode + (p - 1) / p / rates.add + 1 / rates.decode)};
}

core::BytesPerSecond break_even_rate(const core::CodecRates& rates, int ranks, double wire_bits, double baseline_bits) {
  if (ranks < 2 || !(wire_bits < baseline_bits)) return {0};
  const double p = ranks;
  return coding_rate(rates, ranks) * (2 * (p - 1) / p * (baseline_bits - wire_bits) / 32);
}

CodecEstimate estimate(const core::Machine& m, std::string_view codec, int ranks, std::size_t elements,
                       double wire_bits) {
  const auto rates = m.codecs.find(codec);
  if (rates == m.codecs.end()) throw std::out_of_range("the machine has no rates of this codec");
  const auto n = static_cast<double>(elements);
  const double sent = 2.0 * (ranks - 1) / ranks * n * wire_bits / 8;
  const auto chunk = static_cast<std::uint64_t>(n * wire_bits / 8 / ranks);
  const double link = m.link(0, static_cast<std::uint32_t>(ranks) - 1).bytes_per_s(chunk);
  return {.link = {link},
          .break_even = break_even_rate(rates->second, ranks, wire_bits, 32),
          .predicted_s = sent / link + 4 * n / coding_rate(rates->second, ranks).value};
}

}  // namespace gradmeter::compression
