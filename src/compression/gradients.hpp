// Gradients to test codecs on: drawn ones of known distribution, and recorded ones.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compression/gradient_file.hpp"

namespace gradmeter::compression {

/// "gaussian": mean 0, variance 1. "laplace": mean 0, variance 2, heavier tails. "sparse:density=0.05": that share
/// Gaussian, the rest zero. "file:PATH": recorded by train --dump-gradients, repeated where more is asked for.
/// Drawn values come from 2^17 numbers (a table of 2^16 and a sign), chosen by a counter: element i is a pure function
/// of (seed, stream, i) with equal bits on every machine, no libm. Cost: O(n).
/// Laplace's table is determinants of 2x2 Gaussians, which are Laplace's (Kotz, Kozubowski, Podgorski 2001,
/// section 2.2).
class TestGradient {
 public:
  /// Errors: UsageError for a name that is not known, a density outside (0, 1], a file that cannot be read.
  explicit TestGradient(std::string_view name);
  /// Canonical, for the record.
  const std::string& name() const { return name_; }
  /// Streams are independent of each other; a recorded gradient has one, and its seed is its own.
  void draw(std::uint64_t seed, std::uint64_t stream, std::span<float> out) const;

 private:
  std::string name_;
  std::vector<float> table_;  ///< of drawn ones: magnitudes with either sign
  std::uint64_t kept_ = 0;    ///< of 2^32 elements, those that are not zero
  std::shared_ptr<const RecordedGradient> recorded_;
};

}  // namespace gradmeter::compression
