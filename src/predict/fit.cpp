// SPDX-License-Identifier: Apache-2.0
#include "predict/fit.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace gradmeter::predict {
bool solve(SymmetricMatrix a, std::vector<double>& b) {
  const std::size_t n = b.size();
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t k = 0; k < j; ++k) a.at(j, j) -= a.at(j, k) * a.at(j, k);
    if (!(a.at(j, j) > 0)) return false;
    a.at(j, j) = std::sqrt(a.at(j, j));
    for (std::size_t i = j + 1; i < n; ++i) {
      for (std::size_t k = 0; k < j; ++k) a.at(i, j) -= a.at(i, k) * a.at(j, k);
      a.at(i, j) /= a.at(j, j);
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= a.at(i, k) * b[k];
    b[i] /= a.at(i, i);
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a.at(k, i) * b[k];
    b[i] /= a.at(i, i);
  }
  return true;
}

namespace {

/// The posterior of the terms' logarithms x. `cost` is -2 times its logarithm, up to a constant; the residuals that
/// `cost` and `step` take are those of `residuals_at(x)`.
class Posterior {
 public:
  Posterior(std::span<const Prior> priors, std::span<const Residual> residuals, double noise)
      : priors_(priors), residuals_(residuals), noise_(noise) {}

  std::vector<double> residuals_at(std::span<const double> x) const {
    std::vector<double> out;
    for (const Residual& r : residuals_) out.push_back(r(x) / noise_);
    return out;
  }
  double cost(std::span<const double> x, std::span<const double> residuals) const {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += square((x[i] - std::log(priors_[i].middle)) / priors_[i].width);
    for (const double residual : residuals) sum += 2 * (std::sqrt(1 + residual * residual) - 1);
    return std::isfinite(sum) ? sum : 1e300;
  }
  /// Returns where a damped Gauss-Newton step from x leads; empty: no step is possible.
  std::vector<double> step(const std::vector<double>& x, std::span<const double> residuals, double damping) const {
    const std::size_t n = x.size();
    SymmetricMatrix a(n);
    std::vector<double> b(n, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const double weight = 1 / square(priors_[i].width);
      a.at(i, i) = weight;
      b[i] = -weight * (x[i] - std::log(priors_[i].middle));
    }
    constexpr double difference_increment = 1e-4;
    std::vector<std::vector<double>> slopes;
    for (std::size_t i = 0; i < n; ++i) {
      auto moved = x;
      moved[i] += difference_increment;
      slopes.push_back(residuals_at(moved));
      for (std::size_t k = 0; k < residuals.size(); ++k)
        slopes[i][k] = (slopes[i][k] - residuals[k]) / difference_increment;
    }
    for (std::size_t k = 0; k < residuals.size(); ++k) {
      const double weight = 1 / std::sqrt(1 + residuals[k] * residuals[k]);
      for (std::size_t i = 0; i < n; ++i) {
        b[i] -= weight * slopes[i][k] * residuals[k];
        for (std::size_t j = 0; j <= i; ++j) a.at(i, j) += weight * slopes[i][k] * slopes[j][k];
      }
    }
    for (std::size_t i = 0; i < n; ++i) a.at(i, i) *= 1 + damping;
    if (!solve(std::move(a), b)) return {};
    for (std::size_t i = 0; i < n; ++i) b[i] = x[i] + std::clamp(b[i], -1.0, 1.0);
    return b;
  }

 private:
  static double square(double v) { return v * v; }
  std::span<const Prior> priors_;
  std::span<const Residual> residuals_;
  double noise_;
};

}  // namespace

std::vector<double> fit_terms(std::span<const Prior> priors, std::span<const Residual> residuals, double noise) {
  std::vector<double> x;
  for (const Prior& p : priors) x.push_back(std::log(p.middle));
  if (residuals.empty()) return x;
  const Posterior posterior(priors, residuals, noise);
  auto residual_values = posterior.residuals_at(x);
  double cost = posterior.cost(x, residual_values), damping = 1e-2;
  constexpr int most_steps = 60;
  for (int i = 0; i < most_steps && damping < 1e8; ++i) {
    auto next = posterior.step(x, residual_values, damping);
    if (next.empty()) {
      damping *= 10;
      continue;
    }
    auto next_residual_values = posterior.residuals_at(next);
    const double next_cost = posterior.cost(next, next_residual_values);
    if (!(next_cost < cost)) {
      damping *= 5;
      continue;
    }
    const bool settled = cost - next_cost < 1e-6 * cost;
    x = std::move(next), residual_values = std::move(next_residual_values), cost = next_cost;
    damping = std::max(1e-6, damping / 5);
    if (settled) break;
  }
  return x;
}

}  // namespace gradmeter::predict
