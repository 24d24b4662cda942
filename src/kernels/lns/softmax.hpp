// Softmax cross-entropy whose every number is a logarithm.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/lns/lns.hpp"
#include "kernels/pointwise.hpp"

namespace gradmeter::kernels {

/// As `softmax_cross_entropy`, in the system: with m a row's largest logit, e(j) = exp(x(j) − m), their sum in the
/// order j = 0, 1, 2, …, p(j) = e(j)/sum, and (p(j) − one-hot)·scale. Differences and sums are `Lns::subtract` and
/// `Lns::add`; the quotient and the product are exact but for the range, and −log p is read off p's code. The
/// exponential is the one conversion: exp(x) has the code log2(e)·x, in units of a code and to nearest, of the number x
/// in float64. Logits are encoded first, which changes nothing where they are numbers of the system already; a logit
/// that is no number becomes zero. The gradient is brought back to fp32, where it is a number of the system.
CrossEntropy lns_softmax_cross_entropy(const Lns&, std::span<const float> logits, std::span<const std::int32_t> labels,
                                       std::size_t classes, float scale, std::span<float> gradient);

/// exp x as a word, by the code of x ≤ 0: [32768]. What is too small for the system is zero.
std::vector<std::uint16_t> lns_exponentials(unsigned fraction_bits);

}  // namespace gradmeter::kernels
