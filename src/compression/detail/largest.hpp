// The k numbers of largest magnitude, in linear time: the k-th is found by its bits, without sorting.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradmeter::compression::detail {

/// Taken: every x whose magnitude's bits are above `bits`, and the first `ties` of those that are equal to them.
struct Threshold {
  std::uint32_t bits = 0;
  std::size_t ties = 0;
  bool finite = true;  ///< every x; otherwise the rest means nothing
};

/// 1 <= k <= x.size(). Cost: three reads of x, no memory in proportion to it. A guess from a sample lets the first read
/// skip most elements; a wrong guess costs one more read and changes nothing.
Threshold find_threshold(std::span<const float> x, std::size_t k);

/// Where places and values go. Places are indices or a bitmap (zero beforehand); the other is null. They need no
/// alignment.
struct Picked {
  std::byte* indices = nullptr;
  std::byte* bitmap = nullptr;
  std::byte* values = nullptr;
};
/// Writes what the threshold takes, ascending. Cost: one read of x.
void pick(std::span<const float> x, const Threshold&, const Picked&);

}  // namespace gradmeter::compression::detail
