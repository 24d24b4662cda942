// When compression pays: the link speed below which the bytes saved are worth the time of encoding.
#pragma once
#include "core/units.hpp"

namespace gradmeter::compression {

/// The rates at which one rank encodes, decodes and adds [fp32 bytes a second]. In a compressed exchange summands
/// arrive encoded: `add` is then the rate of decode_add.
struct CodecSpeeds {
  core::BytesPerSecond encode, decode, add;
};

/// V in 1/V = (1 + 1/P)/V_q + ((P - 1)/P)/V_add + 1/V_dq: fp32 bytes in a second that go through all the arithmetic of
/// a scatter-reduce and all-gather on P ranks. Every rank encodes its n elements and once more its chunk of the sum,
/// adds up P - 1 chunks, and decodes n. Any rate that is 0 makes it 0.
core::BytesPerSecond exchange_speed(const CodecSpeeds&, int ranks);

/// The link speed below which it pays: 2(P-1)/P · (w0 - w)/32 · V, with w and w0 the bits of an element on the wire
/// with the codec and without (16: bf16 is the fair baseline). 0 where it never pays: one rank, or no fewer bits.
/// Compares whole exchanges: where the baseline hides behind backward, exposed times must be compared instead.
core::BytesPerSecond crossover_link(const CodecSpeeds&, int ranks, double wire_bits, double baseline_bits);

}  // namespace gradmeter::compression
