// SPDX-License-Identifier: Apache-2.0
// The link speed below which compression pays, because saving bytes is worth the time of encoding.
#pragma once
#include <cstddef>
#include <string_view>

#include "core/machine.hpp"
#include "core/units.hpp"

namespace gradmeter::compression {

/// Returns V, the rate [fp32 bytes a second] of all encoding and decoding in a reduce-scatter and all-gather on P
/// ranks: 1/V = (1 + 1/P)/V_q + ((P - 1)/P)/V_add + 1/V_dq, where V_q, V_add and V_dq are the rates of encoding, of
/// decoding and adding, and of decoding. Every rank encodes its n elements and then its block of the sum, adds up P - 1
/// encoded blocks of others, and decodes n elements. V is 0 if any of the three rates is 0.
core::BytesPerSecond coding_rate(const core::CodecRates&, int ranks);

/// The link speed below which a codec pays: 2(P-1)/P · (w0 - w)/32 · V, where w is the bits of an element on the wire
/// with the codec (`wire_bits`), and w0 those in the exchange without it (`baseline_bits`; fp32: 32, bf16: 16). It is 0
/// if the codec never pays: with one rank, or if w >= w0. Whole exchanges are compared. If the exchange overlaps the
/// backward pass, exposed times must be compared instead.
core::BytesPerSecond break_even_rate(const core::CodecRates&, int ranks, double wire_bits, double baseline_bits);

struct CodecEstimate {
  core::BytesPerSecond link;        ///< rate at which a block travels between the first and the last rank
  core::BytesPerSecond break_even;  ///< on a link slower than this the codec is faster than fp32
  double predicted_s = 0;  ///< predicted time [s]: all bytes at the link's rate, then all arithmetic, without overlap
};
/// Estimates an all-reduce of encoded data by reduce-scatter and all-gather. `codec`: its name in Machine::codecs;
/// `wire_bits`: bits of an element. Errors: std::out_of_range where the machine has no rates of the codec.
CodecEstimate estimate(const core::Machine&, std::string_view codec, int ranks, std::size_t elements, double wire_bits);

}  // namespace gradmeter::compression
