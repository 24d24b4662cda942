// How a product is divided on a GPU: part of the order of its sums, so a function of the shape alone.
#pragma once
#include <algorithm>
#include <cstddef>

namespace gradmeter::kernels::cuda {

/// `batches` products of [m × k] by [k × n], each extent below 2^31.
struct ProductExtents {
  unsigned m, n, k, batches;
};

inline constexpr unsigned busy_blocks = 128;  ///< about as many as a GPU has multiprocessors

/// k = [0, length), [length, 2·length), …
struct ProductPieces {
  unsigned count, length;
};
/// Where a long sum has few results, as gradients of weights have, it is shared by blocks: of 256 summands at least
/// each, and as many as make busy_blocks.
inline ProductPieces pieces_of(const ProductExtents& e) {
  constexpr unsigned tile = 64, least = 256;
  const std::size_t tiles = (std::size_t{e.m} + tile - 1) / tile * ((std::size_t{e.n} + tile - 1) / tile) * e.batches;
  const std::size_t most = std::max<std::size_t>(busy_blocks / std::max<std::size_t>(tiles, 1), 1);
  const auto wanted = static_cast<unsigned>(std::clamp<std::size_t>(e.k / least, 1, most));
  const unsigned length = (e.k + wanted - 1) / wanted;
  return {(e.k + length - 1) / length, length};
}

/// Floats that the pieces' sums take; 0 where there is one piece.
inline std::size_t product_scratch(const ProductExtents& e) {
  const unsigned pieces = pieces_of(e).count;
  return pieces == 1 ? 0 : std::size_t{pieces} * e.batches * e.m * e.n;
}

}  // namespace gradmeter::kernels::cuda
