// QSGD as in its paper: the bucket's L2 norm, with which most codes are zero, and a code that is short for zeros.
#pragma once
#include <memory>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// q = sgn(x)·min(floor(s·|x|/N + u), s), N the L2 norm of the bucket, s = `levels` (1 to 127), u uniform [0, 1);
/// decodes to N·q/s. Held as integers of 2^-24, as `qsgd8` does.
/// Wire:   one fp32 a bucket, padded; then a stream of bits, least significant first: for each q that is not 0 the gap
///         to the last such one (to place -1 for the first) and after it a sign bit and |q|; at the end the gap to
///         place n. Gaps and |q| are in Elias' gamma code: as many zeros as there are bits behind the leading 1, the 1,
///         those bits. Padded to 16. wire_bytes(n) is what it takes when each q is ±s.
/// Error:  unbiased; E|Q-x|^2 = N^2/s^2 · sum f(1-f), f the fraction of s·|x|/N.
/// Errors: BackendError when what is decoded was damaged on its way.
/// Source: Alistarh et al., NeurIPS 2017, section 3; Elias, IEEE Trans. Inf. Theory 1975.
std::unique_ptr<Codec> make_qsgd_elias(const core::ParsedName&);

/// Can it lose more than the whole gradient? The loss is largest where all |x| of a bucket are equal: then it is
/// sqrt(bucket)/s - 1 of |x|^2.
bool qsgd_elias_expands(const core::ParsedName&);

}  // namespace gradmeter::compression
