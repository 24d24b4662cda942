// QSGD: stochastic rounding to evenly spaced levels, bucket by bucket.
#pragma once
#include <memory>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// Wire: b + 32/bucket bits an element. s = 2^(b-1) - 1; N the bucket's largest |x| (norm=max) or its Euclidean length
/// (norm=l2); q = sgn(x)·min(floor(s·|x|/N + u), s) with u uniform in [0, 1), or 1/2 (rounding=nearest); decoded N·q/s;
/// two's complement, -2^(b-1) never appears. Error: (N/s)²·Σ f(1-f), f = frac(s·|x|/N), and unbiased, with
/// rounding=stochastic. Cost: 4 + b/8 bytes of memory an element to encode or decode, 8 + b/8 to decode and add.
/// Errors: UsageError unless `bucket` is a multiple of 64.
/// Source: Alistarh et al., NeurIPS 2017; the max norm as in Markov et al. (CGX), Middleware 2022.
std::unique_ptr<Codec> make_qsgd8(const core::ParsedName&);
std::unique_ptr<Codec> make_qsgd4(const core::ParsedName&);
std::unique_ptr<Codec> make_qsgd2(const core::ParsedName&);

/// Does random rounding lose more of a Gaussian bucket than its energy? The mean loss of an element of variance 1 is
/// step·E|x| - 1 where one step, N/s, spans nearly all of them.
bool qsgd_expands(const core::ParsedName&);

}  // namespace gradmeter::compression
