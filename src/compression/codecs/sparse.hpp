// SPDX-License-Identifier: Apache-2.0
// Codecs that send some elements of a tensor: the largest ones, or those at random places (indices in the tensor) that
// are the same on all ranks. The other elements stay in the residual.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "compression/codec.hpp"
#include "compression/detail/draws.hpp"
#include "core/host_device.hpp"
#include "core/name.hpp"

namespace gradmeter::compression::detail {

// Functions that read the parameters of sparse codecs. Those for other parameters are in compression/registry.hpp.

/// Reads a number from `least` to `most`, where `most` itself is allowed only if `closed`. Errors: UsageError that says
/// what is allowed.
double number_between(const core::ParsedName&, std::string_view parameter, double least, double most, bool closed);

/// The share of a tensor that is sent. It is held as the decimal number that was written: 0.07 of 100 elements are 7,
/// though the double nearest to 0.07, times 100, is more than 7.
class Density {
 public:
  /// Reads the parameter `density`. Errors: UsageError unless it is in (0, 1].
  explicit Density(const core::ParsedName&);
  /// ceil(density·n), exact, at most n.
  std::size_t sent_of(std::size_t n) const;
  double value() const { return value_; }

 private:
  double value_;
  std::uint64_t digits_ = 0;  ///< density = digits_ / 10^decimals_
  unsigned decimals_ = 0;
};

/// Errors: UsageError where n elements are too many for indices of 32 bits.
void require_indexable(std::string_view codec, std::size_t n);

// The k numbers of largest magnitude, in linear time: the k-th is found by its bits, without sorting.

/// Selects elements of x by the bits of their magnitude, read as an integer: each one above `bits`, and the first
/// `ties` of those that equal `bits`.
struct Threshold {
  std::uint32_t bits = 0;
  std::size_t ties = 0;
  bool finite = true;  ///< true if every x is finite; if not, the other members have no meaning
};

/// The elements among which the k of largest magnitude are searched, in the order of the tensor. A sample estimates the
/// magnitude that about 1.5·k elements reach. These elements are gathered in one read of the tensor, so that the search
/// itself reads few. If the sample is too small or misleads, or if k is large, the candidates are the whole tensor.
struct Candidates {
  Candidates(std::span<const float> tensor, std::size_t k);
  std::span<const float> x;
  std::span<const std::uint32_t> places;  ///< the place of each candidate in the tensor; empty: x is the tensor

 private:
  std::unique_ptr<float[]> values_;
  std::unique_ptr<std::uint32_t[]> places_;
};

/// Finds the threshold that selects k elements, 1 <= k <= x.size(). Cost: three reads of x, and memory that does not
/// grow with x. A guess from a sample lets the first read skip most elements. A wrong guess costs one more read, and
/// does not change the result.
Threshold find_threshold(std::span<const float> x, std::size_t k);

}  // namespace gradmeter::compression::detail

namespace gradmeter::compression {

/// The layout of a wire that sends k of n elements: first their places, then their values.
struct TopKLayout {
  std::size_t n = 0, k = 0;
  bool bitmap = false;  ///< places are sent as a bitmap, not as indices
  /// The bytes of the places, behind which the values begin.
  GRADMETER_HOST_DEVICE constexpr std::size_t places_bytes() const { return bitmap ? code_bytes(n, 1) : padded(4 * k); }
  GRADMETER_HOST_DEVICE constexpr std::size_t bytes() const { return places_bytes() + padded(4 * k); }
};

/// Sends the k = ceil(density·n) elements of largest |x| as they are, ties to the lowest place; all others decode to 0.
/// Wire:   k ascending places as u32, padded to 16 bytes, or above density 1/32 a bitmap of n bits; then k fp32,
///         padded. For an input that is not finite: the first k places with NaN as values, which decode to NaN in the
///         whole tensor. decode_add leaves elements that were not sent as they are in `addend`.
/// Error:  the energy of the elements that were not sent, at most (1 - k/n)|x|^2.
/// Cost:   one read of the input to encode where k is at most a sixteenth of it, and 8 bytes of memory for each of
///         4k + n/64 elements (detail::Candidates); otherwise four reads (radix select, detail::find_threshold).
///         Decoding and adding in place touches only the elements that were sent.
/// Errors: UsageError beyond 2^32 elements; BackendError when an encoding was damaged on its way.
/// Source: Aji & Heafield, EMNLP 2017; Stich et al., NeurIPS 2018.
class TopK final : public Codec {
 public:
  /// Reads only the parameter `density`, so dgc, which has that parameter too, can pass its own name.
  explicit TopK(const core::ParsedName&);
  TopKLayout wire(std::size_t n) const { return {.n = n, .k = density_.sent_of(n), .bitmap = bitmap_}; }
  std::size_t grain() const override { return whole_tensor; }
  std::size_t wire_bytes(std::size_t n) const override;
  std::size_t encode(std::span<const float> x, std::byte* wire, const RandomDraw&) const override;
  void decode(std::span<const std::byte> wire, std::span<float> out) const override;
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override;
  /// Sets to 0 the elements of `values` [n] that were sent; all of them when the input was not finite.
  void clear_sent(std::span<const std::byte> wire, std::span<float> values) const;

 private:
  bool was_not_finite(std::span<const std::byte> wire, std::size_t n) const;
  template <class Body>
  void each_sent(std::span<const std::byte> wire, std::span<float> out, Body body) const;

  detail::Density density_;
  bool bitmap_;
};
std::unique_ptr<Codec> make_topk(const core::ParsedName&);

}  // namespace gradmeter::compression

namespace gradmeter::compression::detail {

/// Records in a wire that value number `slot` belongs to element i. If the wire has a bitmap, it must be zero at first.
inline void write_place(const TopKLayout& w, std::size_t slot, std::size_t i, std::byte* wire) {
  const auto index = static_cast<std::uint32_t>(i);
  if (w.bitmap) {
    wire[i / 8] |= static_cast<std::byte>(1u << i % 8);
  } else {
    std::memcpy(wire + 4 * slot, &index, 4);
  }
}

// The places that `randomk` sends: arithmetic for one place, which the host and a GPU's threads share.

/// Maps random bits to [0, n) by multiply-shift; the bias is under 2^-32 for n up to 2^32.
GRADMETER_HOST_DEVICE constexpr std::uint64_t scaled_below(std::uint64_t bits, std::uint64_t n) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{bits} * n >> 64);
}

/// Draws k of n places: the range [0, n), rotated by a random offset, is cut into k pieces, and one place is drawn from
/// each. 1 <= k <= n <= 2^32.
class RandomPlaces {
 public:
  /// `rank`, `phase` and `first` of the draw are not used: all ranks draw alike.
  RandomPlaces(const RandomDraw& draw, std::size_t n, std::size_t k)
      : key_(RandomDraw{.seed = draw.seed, .step = draw.step, .tensor = draw.tensor}.key()),
        n_(n),
        k_(k),
        whole_(n / k),
        rest_(n % k),
        factor_(fraction_of(rest_, k)),
        rotation_(scaled_below(hash64(key_), n)),
        first_wrapped_(first_wrapped()) {}

  /// Place number j in ascending order.
  GRADMETER_HOST_DEVICE constexpr std::uint32_t place(std::uint64_t j) const {
    if (k_ == n_) return static_cast<std::uint32_t>(j);
    return static_cast<std::uint32_t>(of_piece(first_wrapped_ + j < k_ ? first_wrapped_ + j : first_wrapped_ + j - k_));
  }

 private:
  /// The place drawn in piece j, which is [j·n/k, (j+1)·n/k) before the rotation.
  GRADMETER_HOST_DEVICE constexpr std::uint64_t of_piece(std::uint64_t j) const {
    const std::uint64_t begin = begin_of(j), end = begin_of(j + 1);
    const std::uint64_t place = begin + scaled_below(hash64(key_ ^ hash64(j)), end - begin) + rotation_;
    return place < n_ ? place : place - n_;
  }
  /// j·n/k, rounded down, for j <= k. To avoid divisions on GPUs, j·rest/k is computed by a factor that may give one
  /// too few, which is corrected.
  GRADMETER_HOST_DEVICE constexpr std::uint64_t begin_of(std::uint64_t j) const {
    const std::uint64_t least = scaled_below(j, factor_);
    return j * whole_ + least + (j * rest_ - least * k_ >= k_ ? 1 : 0);
  }
  /// 2^64·rest/k, rounded down; rest < k.
  static constexpr std::uint64_t fraction_of(std::uint64_t rest, std::uint64_t k) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((Wide{rest} << 64) / k);
  }
  /// The first piece whose place the rotation moves beyond n, and so to the beginning. In ascending order, the places
  /// of this piece and the later ones come first.
  GRADMETER_HOST_DEVICE constexpr std::uint64_t first_wrapped() const {
    std::uint64_t first = 0, last = k_;
    while (first < last) {
      const std::uint64_t middle = (first + last) / 2;
      if (of_piece(middle) >= rotation_) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first;
  }

  std::uint64_t key_, n_, k_, whole_, rest_, factor_, rotation_, first_wrapped_;
};

}  // namespace gradmeter::compression::detail

namespace gradmeter::compression {

/// Sends k = ceil(density·n) elements at places that all ranks draw alike. Only values travel, and values of one place
/// can be summed on their way. The range [0, n), rotated by a random offset, is cut into k pieces as equal as possible,
/// and one place is drawn from each. So every element is sent with probability k/n exactly, all places differ, and they
/// come out in order without a table. A place is a function of (seed, step, tensor, n) alone. Let C be the decoded
/// tensor. With error feedback (`ef=on`) values decode unchanged: |C-x|^2 has mean (1 - k/n)|x|^2, and the residual
/// holds the elements that were not sent. Without error feedback values decode multiplied by n/k, so that C is
/// unbiased: |C-x|^2 has mean (n/k - 1)|x|^2. Together with error feedback, multiplied values would let the residual
/// grow by a factor of n/k - 1 a step.
/// Cost: O(k) for each function but `scatter`, which writes n.
/// Source: Stich et al., NeurIPS 2018 (random-k); Vogels et al., NeurIPS 2019 (with a shared seed the codec is linear).
class RandomK {
 public:
  /// Reads the parameters `density` and `ef`. Errors: UsageError.
  explicit RandomK(const core::ParsedName&);
  std::size_t kept(std::size_t n) const { return density_.sent_of(n); }  ///< k
  /// places [kept(n)], ascending. `rank`, `phase` and `first` of the draw are not used.
  /// Errors: UsageError beyond 2^32 elements.
  void draw_places(const RandomDraw&, std::size_t n, std::span<std::uint32_t> places) const;
  /// The factor by which values are multiplied: n/k without error feedback, else 1.
  float factor_of(std::size_t n, std::size_t k) const;
  /// values[j] = x[places[j]], times `factor_of`.
  void gather(std::span<const float> x, std::span<const std::uint32_t> places, std::span<float> values) const;
  /// residual += x; then takes `values` from the residual and clears what was taken. If the sum has an element that is
  /// not finite, at whatever place, all values are NaN and the residual starts anew at 0: otherwise the element would
  /// stay in the residual, unseen, until its place is drawn. Cost: one pass over x and residual.
  void take_from_residual(std::span<const float> x, std::span<const std::uint32_t> places, std::span<float> residual,
                          std::span<float> values) const;
  /// out[places[j]] = values[j]; all other elements become 0.
  static void scatter(std::span<const float> values, std::span<const std::uint32_t> places, std::span<float> out);
  /// Sets x[places[j]] = 0, so that x is the residual of what was not sent.
  static void clear_sent(std::span<const std::uint32_t> places, std::span<float> x);

 private:
  detail::Density density_;
  bool scaled_;
};
void check_randomk(const core::ParsedName&);

}  // namespace gradmeter::compression
