// SPDX-License-Identifier: Apache-2.0
// Checksums of buffers. To check a collective's result against its inputs, ranks exchange only checksums instead of the
// data: the checksum of a sum follows from the checksums of the summands.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradmeter::dataparallel {

/// The scalar product of x with pseudo-random weights, and |x|^2. Weight i depends on the seed and on i alone; its sign
/// is random, and its size is from 1/2 to below 1. So the product of a sum of vectors is the sum of their products
/// (Freivalds 1977), and one element that is wrong by e changes the product by at least e/2. The sizes vary, because
/// with equal sizes two equal errors would cancel out in half of all cases.
struct Projection {
  double product = 0, square = 0;
};
/// The projection of x, where x[0] has weight number `first`. Cost: one pass.
Projection project(std::span<const float> x, std::uint64_t seed, std::uint64_t first = 0);

/// The sum, modulo 2^64, of all 32-bit words, each multiplied by an odd key of its own. A change of one word always
/// changes the hash; a change of several words leaves it unchanged with a probability of at most 2^-32. Words of 0 add
/// nothing. The bytes after the last whole word count as one word. The hash of a buffer is the sum of the hashes of its
/// parts, if `first` is the index in the buffer of each part's first word. Cost: one pass.
std::uint64_t linear_hash(std::span<const std::byte> bytes, std::uint64_t seed, std::uint64_t first = 0);

}  // namespace gradmeter::dataparallel
