// SPDX-License-Identifier: Apache-2.0
#include "core/statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::core {

namespace {

void check_samples(std::span<const double> samples) {
  if (samples.empty()) throw UsageError("no samples to summarise: at least 1 is needed");
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!std::isfinite(samples[i])) {
      throw UsageError(fmt::format("sample {} of {} is {}: samples must be finite", i, samples.size(), samples[i]));
    }
  }
}

double half_width_share(double low, double high, double middle) {
  if (std::isnan(low) || std::isnan(high)) return std::numeric_limits<double>::infinity();
  const double half = (high - low) / 2;
  if (half == 0) return 0;
  return middle == 0 ? std::numeric_limits<double>::infinity() : half / std::fabs(middle);
}

struct WeightedSample {
  double value, weight, place;
};

/// All samples in ascending order, weighted so that every block has the same weight: a sample weighs 2 if its block is
/// half as long as the mean block. Places begin at 0, and the distance of neighbours is the mean of their weights. So
/// for blocks of equal length, quantiles are the same, to the bit, as those of `core::quantile`.
std::vector<WeightedSample> weighted(const Blocks& blocks) {
  std::vector<WeightedSample> sorted;
  const double mean = static_cast<double>(blocks.samples().size()) / static_cast<double>(blocks.count());
  for (std::size_t b = 0; b < blocks.count(); ++b) {
    const double weight = mean / static_cast<double>(blocks.block(b).size());
    for (const double value : blocks.block(b)) sorted.push_back({value, weight, 0});
  }
  std::ranges::sort(sorted, {}, &WeightedSample::value);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    sorted[i].place = sorted[i - 1].place + (sorted[i - 1].weight + sorted[i].weight) / 2;
  }
  return sorted;
}

double quantile(const std::vector<WeightedSample>& sorted, double q) {
  const double place = q * sorted.back().place;
  const auto above = std::ranges::upper_bound(sorted, place, {}, &WeightedSample::place);
  if (above == sorted.end()) return sorted.back().value;
  const auto below = above - 1;
  return std::lerp(below->value, above->value, (place - below->place) / (above->place - below->place));
}

}  // namespace

std::string_view name(Stop stop) {
  constexpr std::array<std::string_view, 5> names{"none", "interval", "samples", "budget", "interrupted"};
  return names.at(static_cast<std::size_t>(stop));
}

double Summary::relative_half_width() const { return half_width_share(ci95_low, ci95_high, median); }

double quantile(std::span<const double> sorted, double q) {
  if (sorted.empty()) throw UsageError("no samples: a quantile needs at least 1");
  if (!(q >= 0 && q <= 1)) throw UsageError(fmt::format("quantile {} does not exist: it should be from 0 to 1", q));
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 >= sorted.size()) return sorted.back();
  return std::lerp(sorted[below], sorted[below + 1], place - static_cast<double>(below));
}

double median(std::span<const double> samples) {
  check_samples(samples);
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return quantile(sorted, 0.5);
}

Summary summarise(std::span<const double> samples) {
  check_samples(samples);
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const auto ranks = median_interval_indices(sorted.size());
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  return {.median = quantile(sorted, 0.5),
          .q1 = quantile(sorted, 0.25),
          .q3 = quantile(sorted, 0.75),
          .ci95_low = ranks ? sorted[ranks->first] : none,
          .ci95_high = ranks ? sorted[ranks->second] : none,
          .p95 = quantile(sorted, 0.95),
          .p99 = quantile(sorted, 0.99),
          .min = sorted.front(),
          .max = sorted.back(),
          .n = sorted.size()};
}

std::optional<std::pair<std::size_t, std::size_t>> median_interval_indices(std::size_t n) {
  if (n < fewest_blocks) return std::nullopt;
  // Weights are binomial coefficients C(n, k) relative to C(n, (n - 1) / 2), so that nothing overflows. Far from the
  // centre they are too small to change the sum.
  const std::size_t centre = (n - 1) / 2;
  const auto size = static_cast<double>(n);
  const auto lower_weight = [size](double weight, std::size_t k) {
    return weight * static_cast<double>(k) / (size - static_cast<double>(k) + 1);
  };
  double lower_sum = 0, weight = 1;
  for (std::size_t k = centre + 1; k-- > 0 && weight > 1e-30;) {
    lower_sum += weight;
    weight = lower_weight(weight, k);
  }
  // For even n, the term at n / 2 is in neither of the two equal halves.
  const double middle = n % 2 == 0 ? (size - static_cast<double>(centre)) / static_cast<double>(centre + 1) : 0;
  const double total = 2 * lower_sum + middle;
  // Finds the largest k with P(X <= k) <= 2.5 %, X being binomial (n, 1/2). Then [x_k, x_(n-1-k)] of the sorted samples
  // x covers the median with a probability of at least 95 %.
  double tail = lower_sum;
  std::size_t k = centre;
  weight = 1;
  while (k > 0 && tail > 0.025 * total) {
    tail -= weight;
    weight = lower_weight(weight, k);
    --k;
  }
  return std::pair{k, n - 1 - k};
}

double block_median(std::span<const double> block) {
  check_samples(block);
  return median(block.first(block.size() - (block.size() % 2 == 0 ? 1 : 0)));
}

void Blocks::add(std::span<const double> block) {
  if (block.empty()) return;
  medians_.push_back(block_median(block));
  samples_.insert(samples_.end(), block.begin(), block.end());
  ends_.push_back(samples_.size());
}

std::span<const double> Blocks::block(std::size_t i) const {
  const std::size_t begin = i == 0 ? 0 : ends_.at(i - 1);
  return samples().subspan(begin, ends_.at(i) - begin);
}

Summary summarise(const Blocks& blocks) {
  check_samples(blocks.samples());
  const auto samples = weighted(blocks);
  const Summary of_medians = summarise(blocks.medians());
  const double median = quantile(samples, 0.5);
  const double least_half_width = least_interval_share * std::fabs(median);
  return {.median = median,
          .q1 = quantile(samples, 0.25),
          .q3 = quantile(samples, 0.75),
          .ci95_low = std::min(of_medians.ci95_low, median - least_half_width),
          .ci95_high = std::max(of_medians.ci95_high, median + least_half_width),
          .p95 = quantile(samples, 0.95),
          .p99 = quantile(samples, 0.99),
          .min = quantile(samples, 0),
          .max = quantile(samples, 1),
          .n = blocks.samples().size()};
}

}  // namespace gradmeter::core
