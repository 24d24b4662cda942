// Natural compression: powers of two.
#pragma once
#include <memory>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// Wire: 8 + 16/bucket bits an element; an int16 E = ceil(log2 max|x|) a bucket. Codes: bit 7 sign; c = 0 is zero,
/// c = 1 … 127 is 2^(E-127+c). |x| is rounded at random to one of the neighbouring powers, without bias; below the
/// lowest, to it or to zero. Error: Σ (|x| - 2^e)(2^(e+1) - |x|), at most ‖x‖²/8.
/// A bucket that is not finite has E = -32768. Decoded, 2^128 is the largest float.
/// Cost: 5 bytes of memory an element to encode or decode, 9 to decode and add.
/// Errors: UsageError unless `bucket` is a multiple of 64.
/// Source: Horváth et al., "Natural compression for distributed deep learning", MSML 2022.
std::unique_ptr<Codec> make_natural8(const core::ParsedName&);

}  // namespace gradmeter::compression
