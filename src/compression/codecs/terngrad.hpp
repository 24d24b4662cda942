// TernGrad: one scale for a whole span, and -1, 0 or +1 times it for each element.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// Wire: 16 bytes, the fp32 scale M first, and 2 bits an element; nothing for an empty span. M = max|x| after |x| is
/// clipped at clip·σ (clip=0: not at all), σ the root mean square of the span; codes 00, 01, 11 are 0, +1, -1, nonzero
/// with probability |x|/M: QSGD's rule for two bits and the max norm. Error, of a call: M·‖x‖₁ - ‖x‖² where nothing is
/// clipped; clipping adds a bias whose square is Σ (|x| - clip·σ)₊².
/// Grain 1, but each call has its own scale: codes depend on how a span is cut.
/// Cost: 8.25 bytes of memory an element to encode (two reads), 4.25 to decode, 8.25 to decode and add.
/// Errors: UsageError unless `clip` is a number from 0 to 1000 and `exchange` is gather (these bytes, to everybody),
/// sra (a schedule's, of encoded parts) or sum (whole bytes with one scale for all ranks, see below: sums of P such
/// codes need log2(2P + 1) bits). Source: Wen et al., NeurIPS 2017.
std::unique_ptr<Codec> make_terngrad(const core::ParsedName&);

/// The parts of it, for a sum of integers with one scale for all ranks (the largest of their M).

/// The parameter `clip`.
double ternary_clip(const core::ParsedName&);
/// M of a span: 0 when all are zero, NaN when any is not finite. Sums of squares are in doubles, by pieces: the
/// order (detail/tree_sum.hpp) is part of the codes. Cost: reads x once.
float ternary_scale(std::span<const float> x, double clip);
/// codes [x.size()] of -1, 0 or 1, drawn as `terngrad` draws. |x| beyond `scale` is as if at it; with a scale that is 0
/// or NaN all are 0. Cost: 5 bytes of memory an element.
void ternary_quantise(std::span<const float> x, float scale, std::span<std::int8_t> codes, const Draw&);
/// out [sums.size()] = scale · sum. Cost: 5 (8) bytes of memory an element.
void ternary_decode(std::span<const std::int8_t> sums, float scale, std::span<float> out);
void ternary_decode(std::span<const std::int32_t> sums, float scale, std::span<float> out);

}  // namespace gradmeter::compression
