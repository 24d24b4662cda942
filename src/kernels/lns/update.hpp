// Weights kept in the logarithmic system, in fp32's memory: how they change.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/lns/conversion.hpp"

namespace gradmeter::kernels {

struct LnsUpdate {
  unsigned fraction_bits = 8;
  bool kahan = false;  ///< a carry keeps what rounding took
};

/// One number, for the host's loops and a GPU's threads: w and the carry go through words and back. carry: null
/// without Kahan's sum. Table: as lns_add's.
template <class Table>
GRADMETER_HOST_DEVICE constexpr void lns_change(const LnsConversion& t, const Table& table, float& w, float* carry,
                                                Lns16 change) {
  Lns16 word = lns_encode(t, w, nullptr);
  if (carry) {
    Lns16 kept = lns_encode(t, *carry, nullptr);
    lns_kahan_add(word, kept, change, table, nullptr);
    *carry = lns_decode(t, kept);
  } else {
    word = lns_add(word, change, table, nullptr);
  }
  w = lns_decode(t, word);
}

/// Rounded to the nearest number of the system.
void lns_round(unsigned fraction_bits, std::span<float> weights);
/// w becomes w + (target − w), the difference rounded to a word first. carry: as w, empty without Kahan's sum.
/// Cost: 20 bytes an element, with a carry 28, and a look-up a sum.
void lns_add(LnsUpdate, std::span<float> w, std::span<const float> target, std::span<float> carry);
/// w becomes w + (−size)·g, product and sum the system's own.
void lns_descend(LnsUpdate, std::span<float> w, std::span<const float> g, float size, std::span<float> carry);

}  // namespace gradmeter::kernels
