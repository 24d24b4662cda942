// SPDX-License-Identifier: Apache-2.0
// The link speed below which compression pays, because the bytes saved are worth the time of encoding.
#pragma once
#include <cstddef>
#include <string_view>

#include "core/machine.hpp"
#include "core/units.hpp"

namespace gradmeter::compression {

/// V in 1/V = (1 + 1/P)/V_q + ((P - 1)/P)/V_add + 1/V_dq: the fp32 bytes in a second that go through all the arithmetic
/// of a scatter-reduce and all-gather on P ranks. Every rank encodes its n elements and then its chunk of the sum, adds
/// up P - 1 encoded chunks of others, and decodes n elements. V is 0 where any of the rates is 0.
core::BytesPerSecond exchange_speed(const core::CodecRates&, int ranks);

/// The link speed below which a codec pays: 2(P-1)/P · (w0 - w)/32 · V, where w and w0 are the bits of an element on
/// the wire with the codec and in the dense exchange (32: fp32, 16: bf16). 0 where it never pays, which is with one
/// rank, or where the codec does not send fewer bits. Whole exchanges are compared: where the dense exchange overlaps
/// the backward pass, exposed times must be compared instead.
core::BytesPerSecond crossover_link(const core::CodecRates&, int ranks, double wire_bits, double baseline_bits);

struct CodecEstimate {
  core::BytesPerSecond link;       ///< the rate at which a chunk travels between the first and the last rank
  core::BytesPerSecond crossover;  ///< on a slower link than this the codec beats fp32
  double predicted_s = 0;  ///< time of the bytes at the link's rate, then of all arithmetic, without overlap [s]
};
/// Estimates an all-reduce of encoded data by scatter-reduce and all-gather. `codec`: its name in Machine::codecs;
/// `wire_bits`: bits of an element. Errors: std::out_of_range where the machine has no rates of the codec.
CodecEstimate estimate(const core::Machine&, std::string_view codec, int ranks, std::size_t elements, double wire_bits);

}  // namespace gradmeter::compression
