#include "bench/engine/projected_sum.hpp"

#include <cmath>

#include "core/format.hpp"

namespace gradmeter::bench {

ProjectedSum::ProjectedSum(std::span<const float> result, std::size_t columns, double scale)
    : result_(result), columns_(columns), in_last_row_(result.size() % columns), scale_(scale) {
  if (in_last_row_ == 0) return;
  const std::size_t last = result.size() - in_last_row_;
  combination_.resize(last / columns);
  missing_.resize(columns - in_last_row_);
  for (std::size_t c = 0; c < in_last_row_; ++c) last_row_square_ += at(last + c) * at(last + c);
  for (std::size_t row = 0; row < combination_.size(); ++row) {
    for (std::size_t c = 0; c < in_last_row_; ++c) combination_[row] += at(last + c) * at(row * columns + c);
  }
}

void ProjectedSum::add(std::size_t first, std::span<const double> exact) {
  for (std::size_t n = 0; n < exact.size(); ++n) {
    const std::size_t i = first + n, row = i / columns_, column = i % columns_;
    product_ += at(i) * exact[n];
    square_ += at(i) * at(i);
    if (in_last_row_ > 0 && column >= in_last_row_) {
      missing_[column - in_last_row_] += combination_[row] * (exact[n] - at(i));
    }
  }
}

std::string ProjectedSum::fault() const {
  constexpr double allowed = 1e-3;
  double square = square_;
  if (last_row_square_ > 0) {  // else nothing of that row is in the space
    for (const double m : missing_) square += std::pow(m / last_row_square_, 2);
  }
  if (square_ > 0 && std::fabs(product_ - square) <= allowed * square_) return {};
  return fmt::format("no projection of the sum: its product with it is {:.4g}, its square {:.4g}", product_, square);
}

}  // namespace gradmeter::bench
