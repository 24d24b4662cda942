// The noise of gradients, which shows how large a batch can usefully be. Estimated from two batch sizes: a rank's and
// all ranks'. Source: McCandlish, Kaplan & Amodei, "An empirical model of large-batch training", arXiv:1812.06162,
// appendix A.1.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// Squared norms of one step's gradients, all at the same weights.
struct GradientNorms {
  double part_square = 0;  ///< of a rank's gradient, the mean over the ranks
  double mean_square = 0;  ///< of the mean gradient
};

/// Collective. `mine`: this rank's gradient, of the mean loss over its part of the batch.
/// Cost: an all-reduce of 8 bytes an element, in chunks, and memory for one of them.
GradientNorms gradient_norms(const runtime::Communicator&, std::span<const float> mine);

/// Averages over steps before it divides: a quotient of two noisy numbers would be biased.
class NoiseScale {
 public:
  /// The samples of part_square and of mean_square. Errors: std::invalid_argument unless part < whole.
  NoiseScale(std::size_t part_batch, std::size_t whole_batch);
  void add(const GradientNorms&);
  std::size_t steps() const { return steps_; }

  /// ‖G‖², unbiased, of the gradient over all data; below zero where noise hides it. Zero before the first step.
  double gradient_square() const;
  /// tr Σ, unbiased, of one sample's gradient.
  double variance() const;
  /// tr Σ/‖G‖² [samples]; empty where ‖G‖² or tr Σ is not above zero.
  std::optional<double> samples() const;

 private:
  double part_batch_, whole_batch_;
  std::size_t steps_ = 0;
  GradientNorms sums_;
};

}  // namespace gradmeter::bench
