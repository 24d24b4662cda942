// Compares the elements of a result with a float64 reference, one by one, to make a KernelCaseCheck.
#pragma once
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/cases/kernel_case.hpp"

namespace gradmeter::kernels {

/// A sum of products in float64, and what bounds a float sum's distance from it.
struct ReferenceSum {
  double value = 0;
  double size = 0;        ///< sum of |a·b|
  std::size_t terms = 0;  ///< how many products; 0: the element is zero whatever the data
  void add(double a, double b) {
    value += a * b;
    size += std::fabs(a * b);
    ++terms;
  }
};

/// u·|value| + 4·2^-24·√terms·size, u the roundoff of a result's type; exact sums must be equal. The largest rounding
/// error of the storage type and of fp32 sums, in any order.
double allowed_distance(const ReferenceSum&, Precision);

class ElementCheck {
 public:
  /// `counts`: false for elements that are zero by the shape alone; they are checked, not counted as suspicious zeros.
  void add(double result, double reference, double allowed, bool counts = true);
  KernelCaseCheck verdict() const;

 private:
  double off_ = 0, norm_ = 0, worst_ = 0;
  std::size_t counted_ = 0, zeros_ = 0;
};

/// At most `count` places out of [0, n), n > 0, in ascending order: all of them, or the first, the last, and a random
/// one from each of the equal stretches between, so that no period of the layout hides a column.
std::vector<std::size_t> sample_places(std::size_t n, std::size_t count, std::uint64_t seed);

}  // namespace gradmeter::kernels
