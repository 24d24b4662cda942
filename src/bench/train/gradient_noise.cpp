#include "bench/train/gradient_noise.hpp"

#include <algorithm>
#include <stdexcept>

namespace gradmeter::bench {

GradientNorms gradient_norms(const runtime::Communicator& c, std::span<const float> mine) {
  constexpr std::size_t chunk = 1 << 16;
  std::vector<double> sum;
  double part = 0, whole = 0;
  for (std::size_t i = 0; i < mine.size(); i += chunk) {
    const auto values = mine.subspan(i, std::min(chunk, mine.size() - i));
    sum.assign(values.begin(), values.end());
    for (const double x : sum) part += x * x;
    c.sum(sum);
    for (const double x : sum) whole += x * x;
  }
  const auto ranks = static_cast<double>(c.size());
  return {.part_square = c.sum(part) / ranks, .mean_square = whole / (ranks * ranks)};
}

NoiseScale::NoiseScale(std::size_t part_batch, std::size_t whole_batch)
    : part_batch_(static_cast<double>(part_batch)), whole_batch_(static_cast<double>(whole_batch)) {
  if (part_batch == 0 || part_batch >= whole_batch) {
    throw std::invalid_argument("a noise scale takes gradients of two batch sizes");
  }
}

void NoiseScale::add(const GradientNorms& n) {
  sums_.part_square += n.part_square;
  sums_.mean_square += n.mean_square;
  ++steps_;
}

// E‖g_B‖² = ‖G‖² + tr Σ/B for a batch of B independent samples: two equations.
double NoiseScale::gradient_square() const {
  if (steps_ == 0) return 0;
  return (whole_batch_ * sums_.mean_square - part_batch_ * sums_.part_square) / (whole_batch_ - part_batch_) /
         static_cast<double>(steps_);
}

double NoiseScale::variance() const {
  if (steps_ == 0) return 0;
  return (sums_.part_square - sums_.mean_square) / (1 / part_batch_ - 1 / whole_batch_) / static_cast<double>(steps_);
}

std::optional<double> NoiseScale::samples() const {
  const double gradient = gradient_square(), noise = variance();
  if (!(gradient > 0) || !(noise > 0)) return std::nullopt;
  return noise / gradient;
}

}  // namespace gradmeter::bench
