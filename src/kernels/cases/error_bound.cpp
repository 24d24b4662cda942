// SPDX-License-Identifier: Apache-2.0
#include "kernels/cases/error_bound.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random.hpp"

namespace gradmeter::kernels {
namespace {
/// partial_sums: the magnitude of the partial sums, each of which is rounded.
double rounding_errors(const ReferenceSum& sum, double partial_sums, Precision p) {
  if (info(p).integer) return 0;
  return info(p).roundoff * std::fabs(sum.value) +
         4 * info(p).sum_roundoff * std::sqrt(static_cast<double>(sum.terms)) * partial_sums;
}
}  // namespace

double allowed_distance(const ReferenceSum& sum, Precision p) { return rounding_errors(sum, sum.absolute_sum, p); }
double allowed_distance_of_random_terms(const ReferenceSum& sum, Precision p) {
  return rounding_errors(sum, std::min(sum.absolute_sum, 2 * std::sqrt(sum.squares)), p);
}

void ElementCheck::add(double result, double reference, double allowed, bool counts) {
  const double distance = std::fabs(result - reference);
  squared_distance_ += distance * distance;
  squared_reference_ += reference * reference;
  const double worst = allowed > 0 ? distance / allowed : distance == 0 ? 0 : 2;
  if (worst > worst_ || std::isnan(worst)) worst_ = worst;  // nothing is greater than a NaN, so it stays
  if (!counts) return;
  ++counted_;
  zeros_ += result == 0;
}

KernelCaseCheck ElementCheck::verdict() const {
  const double zeros = counted_ > 0 ? static_cast<double>(zeros_) / static_cast<double>(counted_) : 0;
  return {squared_reference_ > 0 ? std::sqrt(squared_distance_ / squared_reference_) : std::sqrt(squared_distance_),
          worst_, zeros};
}

std::vector<std::size_t> sample_places(std::size_t n, std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> places(std::min(n, std::max<std::size_t>(count, 1)));
  if (places.size() == n) {
    std::iota(places.begin(), places.end(), std::size_t{0});
    return places;
  }
  const core::Random random(seed, 0x706c);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t first = i * n / places.size(), next = (i + 1) * n / places.size();
    places[i] = first + random.below(i, next - first);
  }
  places.front() = 0;
  if (places.size() > 1) places.back() = n - 1;
  return places;
}

}  // namespace gradmeter::kernels
