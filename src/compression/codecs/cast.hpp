// Casts: fp32 to a 16-bit float and back.
#pragma once
#include <memory>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// Wire: 2 bytes an element. Rounded to nearest even, subnormals kept; too large a number becomes infinity and NaN
/// stays NaN, each in its own element. Error: relative, at most 2^-11 (fp16), 2^-8 (bf16) in the normal range.
/// Cost:  6 bytes of memory an element to encode or decode, 10 to decode and add.
std::unique_ptr<Codec> make_fp16(const core::ParsedName&);
std::unique_ptr<Codec> make_bf16(const core::ParsedName&);

}  // namespace gradmeter::compression
