// 8-bit floats, scaled bucket by bucket.
#pragma once
#include <memory>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// Wire: 8 + 32/bucket bits an element. N the bucket's largest |x|, which is what is sent as the scale; the code is
/// x·448/N (e4m3) or x·57344/N (e5m2), rounded to nearest even. Error: relative, at most 2^-4 (e4m3), 2^-3 (e5m2) down
/// to N·2^-6/448 and N·2^-14/57344; below, at most half the smallest subnormal.
/// Cost: 5 bytes of memory an element to encode or decode, 9 to decode and add.
/// Errors: UsageError unless `bucket` is a multiple of 64.
/// Source: Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433; OCP 8-bit Floating Point 1.0.
std::unique_ptr<Codec> make_fp8_e4m3(const core::ParsedName&);
std::unique_ptr<Codec> make_fp8_e5m2(const core::ParsedName&);

}  // namespace gradmeter::compression
