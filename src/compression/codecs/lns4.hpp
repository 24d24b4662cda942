// Four bits in a logarithmic number system.
#pragma once
#include <memory>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// Wire: 4 + 32/bucket bits an element: a sign and three bits for 0, N·2^-6, N·2^-5 … N, N the bucket's largest |x|.
/// |x| is rounded at random to a neighbouring level, without bias: the probability is linear in |x|. Error:
/// Σ (|x| - l)(h - |x|), l and h the levels around |x|.
/// Cost: 4.5 bytes of memory an element to encode or decode, 8.5 to decode and add.
/// Errors: UsageError unless `bucket` is a multiple of 64.
/// Source: Horváth et al., MSML 2022 (natural dithering: levels at powers of two), with the max norm.
std::unique_ptr<Codec> make_lns4(const core::ParsedName&);

}  // namespace gradmeter::compression
