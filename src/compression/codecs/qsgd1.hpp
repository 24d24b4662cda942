// One random bit an element.
#pragma once
#include <memory>

#include "compression/codec.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// Wire: 1 + 32/bucket bits an element. N the bucket's largest |x|; the bit is 1, meaning +N, with probability
/// (1 + x/N)/2, else it means -N. Error: d·N² - ‖x‖² a bucket of d elements, and unbiased.
/// Cost: 4.1 bytes of memory an element to encode or decode, 8.1 to decode and add.
/// Errors: UsageError unless `bucket` is a multiple of 64.
/// Source: Suresh et al., ICML 2017 (stochastic binary quantisation), between -N and N.
std::unique_ptr<Codec> make_qsgd1(const core::ParsedName&);

}  // namespace gradmeter::compression
