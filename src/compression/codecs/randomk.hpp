// Elements at places that all ranks draw alike: only values travel, and values of one place can be summed on their way.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "compression/codec.hpp"
#include "compression/detail/parameters.hpp"
#include "core/name.hpp"

namespace gradmeter::compression {

/// k = ceil(density·n) places: [0, n), rotated by a random offset, is cut into k pieces as equal as possible, and one
/// place is drawn from each. So every element is sent with probability k/n exactly, all places differ, and they come
/// out in order with no table. A place is a function of (seed, step, tensor, n) alone. Decoded: with error feedback
/// (`ef=on`) the values as they are: |C-x|^2 has mean (1 - k/n)|x|^2, and the residual brings back the rest. Without it
/// the values times n/k: unbiased, |C-x|^2 has mean (n/k - 1)|x|^2; a residual of these would grow by n/k - 1 a step.
/// Cost:    O(k) for each function but `scatter`, which writes n.
/// Source:  Stich et al., NeurIPS 2018 (random-k); Vogels et al., NeurIPS 2019 (a shared seed makes it linear).
class RandomK {
 public:
  /// The parameters `density` and `ef`. Errors: UsageError.
  explicit RandomK(const core::ParsedName&);
  std::size_t kept(std::size_t n) const { return density_.of(n); }  ///< k
  /// places [kept(n)], ascending. `rank`, `phase` and `first` of the draw are not used.
  /// Errors: UsageError beyond 2^32 elements.
  void draw_places(const Draw&, std::size_t n, std::span<std::uint32_t> places) const;
  /// What values are multiplied by: n/k without error feedback, else 1.
  float factor_of(std::size_t n, std::size_t k) const;
  /// values[j] = x[places[j]], times `factor_of`.
  void gather(std::span<const float> x, std::span<const std::uint32_t> places, std::span<float> values) const;
  /// out = 0 but for out[places[j]] = values[j].
  static void scatter(std::span<const float> values, std::span<const std::uint32_t> places, std::span<float> out);
  /// x[places[j]] = 0: what is left in a residual.
  static void clear_sent(std::span<const std::uint32_t> places, std::span<float> x);

 private:
  detail::Density density_;
  bool scaled_;
};
void check_randomk(const core::ParsedName&);

}  // namespace gradmeter::compression
