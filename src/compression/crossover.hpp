// When compression pays: the link speed below which the bytes saved are worth the time of encoding.
#pragma once
#include <cstddef>
#include <string_view>

#include "core/machine.hpp"
#include "core/units.hpp"

namespace gradmeter::compression {

/// V in 1/V = (1 + 1/P)/V_q + ((P - 1)/P)/V_add + 1/V_dq: fp32 bytes in a second that go through all the arithmetic of
/// a scatter-reduce and all-gather on P ranks. Every rank encodes its n elements and once more its chunk of the sum,
/// adds up P - 1 chunks, which arrive encoded, and decodes n. Any rate that is 0 makes it 0.
core::BytesPerSecond exchange_speed(const core::CodecRates&, int ranks);

/// The link speed below which it pays: 2(P-1)/P · (w0 - w)/32 · V, with w and w0 the bits of an element on the wire
/// with the codec and without (32, or 16 of a dense exchange in bf16). 0 where it never pays: one rank, or no fewer
/// bits. Compares whole exchanges: where the baseline hides behind backward, exposed times must be compared instead.
core::BytesPerSecond crossover_link(const core::CodecRates&, int ranks, double wire_bits, double baseline_bits);

/// An all-reduce of encoded data, scatter-reduce and all-gather.
struct CodedExchange {
  std::string_view codec;  ///< its name in Machine::codecs
  int ranks = 2;
  std::size_t elements = 0;
  double wire_bits = 32;  ///< of an element
};

struct CodecEstimate {
  core::BytesPerSecond link;       ///< of a chunk between the first and the last rank
  core::BytesPerSecond crossover;  ///< on a slower link than this the codec beats fp32
  double predicted_s = 0;          ///< bytes at the link's rate, then all arithmetic, nothing overlapped
};
/// Errors: std::out_of_range where the machine has no rates of the codec.
CodecEstimate estimate(const core::Machine&, const CodedExchange&);

}  // namespace gradmeter::compression
