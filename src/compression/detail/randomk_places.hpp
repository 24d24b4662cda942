// Which places `randomk` sends: one number's arithmetic, for the host and for a GPU's threads.
#pragma once
#include <cstddef>
#include <cstdint>

#include "compression/codec.hpp"
#include "compression/detail/draws.hpp"
#include "core/host_device.hpp"

namespace gradmeter::compression::detail {

/// [0, n): multiply-shift; bias under 2^-32 for n up to 2^32.
constexpr std::uint64_t below(std::uint64_t bits, std::uint64_t n) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{bits} * n >> 64);
}

/// [0, n), rotated by a random offset, is cut into k pieces, and one place is drawn from each. 1 <= k <= n <= 2^32.
class RandomPlaces {
 public:
  /// `rank`, `phase` and `first` of the draw are not used: all ranks draw alike.
  RandomPlaces(const Draw& draw, std::size_t n, std::size_t k)
      : key_(Draw{.seed = draw.seed, .step = draw.step, .tensor = draw.tensor}.key()),
        n_(n),
        k_(k),
        turn_(below(mixed(key_), n)),
        wrapped_(first_wrapped()) {}

  /// Place number j in ascending order.
  constexpr std::uint32_t place(std::uint64_t j) const {
    if (k_ == n_) return static_cast<std::uint32_t>(j);
    return static_cast<std::uint32_t>(of_piece(wrapped_ + j < k_ ? wrapped_ + j : wrapped_ + j - k_));
  }

 private:
  /// Piece j is [j·n/k, (j+1)·n/k) before the rotation.
  constexpr std::uint64_t of_piece(std::uint64_t j) const {
    const std::uint64_t begin = j * n_ / k_, end = (j + 1) * n_ / k_;
    const std::uint64_t place = begin + below(mixed(key_ ^ mixed(j)), end - begin) + turn_;
    return place < n_ ? place : place - n_;
  }
  /// After the rotation, later pieces wrap to 0: those come first.
  constexpr std::uint64_t first_wrapped() const {
    std::uint64_t first = 0, last = k_;
    while (first < last) {
      const std::uint64_t middle = (first + last) / 2;
      if (of_piece(middle) >= turn_) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first;
  }

  std::uint64_t key_, n_, k_, turn_, wrapped_;
};

}  // namespace gradmeter::compression::detail
