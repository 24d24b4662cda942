// One bit an element: its sign. The codec is biased, so error feedback adds what is lost to the next gradient.
#pragma once
#include <memory>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// bit i = (x[i] >= 0). One mean (`means=1`): decodes to ±alpha, alpha the mean |x| of the bucket. Two (`means=2`):
/// to the mean of the elements whose bit is 1, or of those whose bit is 0; 0 where there are none.
/// Wire:   one fp32 a bucket, or two (bit 1's first); then one bit an element.
/// Error:  |C-x|^2 = (1-delta)|x|^2, delta = |x|_1^2/(n|x|^2) a bucket; two means: |x|^2 - S+^2/n+ - S-^2/n-.
/// Bits:   equal on every instruction set: sums run in 16 doubles, element i in sum i mod 16, then pairwise.
/// Cost:   one read of the input; 4 + 1/8 bytes an element to encode or decode, 8 + 1/8 to decode and add.
/// Source: Seide et al., Interspeech 2014 (two means); Karimireddy et al., ICML 2019 (sign times mean, feedback).
std::unique_ptr<Codec> make_onebit(const core::ParsedName&);

}  // namespace gradmeter::compression
