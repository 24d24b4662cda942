// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <vector>

#include "kernels/host/threads.hpp"
#include "kernels/pointwise/updates.hpp"

namespace gradmeter::kernels {
namespace {

constexpr std::size_t grain = 1 << 16;  // the fewest elements for each thread, as in pointwise.cpp

/// Adds up the NormSquares that block(first, count) returns for elements [first, first + count), over all blocks of [0,
/// n). Several threads call `block`.
template <class Block>
NormSquares sum_blocks(std::size_t n, const Block& block) {
  std::vector<NormSquares> parts(NormBlocks::blocks_in(n));
  split(parts.size(), grain / NormBlocks::length, [&](std::size_t first, std::size_t count) {
    for (std::size_t b = first; b < first + count; ++b)
      parts[b] = block(b * NormBlocks::length, std::min(NormBlocks::length, n - b * NormBlocks::length));
  });
  NormSquares sum;
  for (const NormSquares& p : parts) sum.weight_squares += p.weight_squares, sum.other_squares += p.other_squares;
  return sum;
}

/// Σ a(i)² and Σ b(i)² over [first, first + count), in the order of NormBlocks. Its lanes let the loop fill vectors.
template <class A, class B>
NormSquares squares(std::size_t first, std::size_t count, const A& a, const B& b) {
  constexpr std::size_t lanes = NormBlocks::lanes;
  std::array<double, lanes> a_sums{}, b_sums{};
  const std::size_t end = first + count, lanes_end = first + count / lanes * lanes;
  for (std::size_t i = first; i < lanes_end; i += lanes) {
    for (std::size_t k = 0; k < lanes; ++k) {
      const double x = double{a(i + k)}, y = double{b(i + k)};
      a_sums[k] += x * x;
      b_sums[k] += y * y;
    }
  }
  NormSquares s;
  for (std::size_t k = 0; k < lanes; ++k) s.weight_squares += a_sums[k], s.other_squares += b_sums[k];
  for (std::size_t i = lanes_end; i < end; ++i) {
    const double x = double{a(i)}, y = double{b(i)};
    s.weight_squares += x * x;
    s.other_squares += y * y;
  }
  return s;
}

}  // namespace

NormSquares lars_norms(std::span<const float> weights, std::span<const float> gradients, TensorPiece piece) {
  const float *const w = weights.data() + piece.offset, *const g = gradients.data() + piece.offset;
  return sum_blocks(piece.count, [=](std::size_t first, std::size_t count) {
    return squares(
        first, count, [=](std::size_t i) { return w[i]; }, [=](std::size_t i) { return g[i]; });
  });
}

void lars(std::span<float> weights, std::span<float> velocity, std::span<const float> gradients, TensorPiece piece,
          NormSquares sums, LarsParameters p) {
  float *const w = weights.data() + piece.offset, *const v = velocity.data() + piece.offset;
  const float* const g = gradients.data() + piece.offset;
  split(piece.count, grain, [=, rate = p.rate(sums)](std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) p.update(w[i], v[i], g[i], rate);
  });
}

NormSquares lamb_norms(std::span<const float> weights, std::span<float> mean, std::span<float> square,
                       std::span<const float> gradients, TensorPiece piece, LambParameters p, std::uint64_t number) {
  const float *const w = weights.data() + piece.offset, *const g = gradients.data() + piece.offset;
  float *const m = mean.data() + piece.offset, *const v = square.data() + piece.offset;
  return sum_blocks(piece.count, [=, u = p.unbiased(number)](std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) p.average(m[i], v[i], g[i]);
    return squares(
        first, count, [=](std::size_t i) { return w[i]; },
        [=](std::size_t i) { return p.direction(w[i], m[i], v[i], u); });
  });
}

void lamb(std::span<float> weights, std::span<const float> mean, std::span<const float> square, TensorPiece piece,
          NormSquares sums, LambParameters p, std::uint64_t number) {
  float* const w = weights.data() + piece.offset;
  const float *const m = mean.data() + piece.offset, *const v = square.data() + piece.offset;
  split(piece.count, grain, [=, u = p.unbiased(number), rate = p.rate(sums)](std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) w[i] -= rate * p.direction(w[i], m[i], v[i], u);
  });
}

}  // namespace gradmeter::kernels
