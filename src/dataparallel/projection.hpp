// Short sums of long buffers, by which ranks can check a collective's result against its inputs without another
// collective of that size.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradmeter::dataparallel {

/// The product of x with pseudo-random weights, and |x|^2. Weight i depends on seed and i alone: of either sign, of a
/// size from 1/2 to below 1. So projections add up as the vectors do (Freivalds 1977), and one element that is off by e
/// shows as e/2 at least; weights of one size would hide half of all errors that are equal in two places.
struct Projection {
  double product = 0, square = 0;
};
/// x[0] has weight number `first`. Cost: one pass.
Projection project(std::span<const float> x, std::uint64_t seed, std::uint64_t first = 0);

/// Sum over 32-bit words of word · odd key, modulo 2^64. It shows any change of one word, and of several words but for
/// one chance in 2^32. Adds up over parts: word 0 has key number `first`. Words of 0 add nothing. Bytes after the last
/// whole word count as one. Cost: one pass.
std::uint64_t linear_hash(std::span<const std::byte> bytes, std::uint64_t seed, std::uint64_t first = 0);

}  // namespace gradmeter::dataparallel
