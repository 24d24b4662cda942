#include "analysis/ratio.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::analysis {
namespace {

constexpr double not_known = std::numeric_limits<double>::quiet_NaN();
constexpr double confidence_tail = 0.025;

struct LogMoments {
  double mean = 0;
  double variance = not_known;  ///< of one launch; none of a single one
  std::size_t n = 0;
  double of_mean() const { return variance / static_cast<double>(n); }
};

LogMoments log_moments(std::span<const double> values) {
  if (values.empty()) throw core::UsageError("a side has no launch; a ratio needs at least one of each");
  LogMoments m{.n = values.size()};
  for (const double v : values) {
    if (!(v > 0) || !std::isfinite(v)) {
      throw core::UsageError(fmt::format("{} has no logarithm; a ratio needs positive numbers", v));
    }
    m.mean += std::log(v);
  }
  m.mean /= static_cast<double>(m.n);
  if (m.n < 2) return m;
  double squares = 0;
  for (const double v : values) squares += (std::log(v) - m.mean) * (std::log(v) - m.mean);
  m.variance = squares / static_cast<double>(m.n - 1);
  return m;
}

double t_quantile(double degrees) {
  return boost::math::quantile(boost::math::complement(boost::math::students_t(degrees), confidence_tail));
}

/// Welch–Satterthwaite.
double degrees_of_freedom(const LogMoments& a, const LogMoments& b) {
  const double error = a.of_mean() + b.of_mean();
  return error * error /
         (a.of_mean() * a.of_mean() / static_cast<double>(a.n - 1) +
          b.of_mean() * b.of_mean() / static_cast<double>(b.n - 1));
}

double two_sided(double t, double degrees) {
  return 2 * boost::math::cdf(boost::math::complement(boost::math::students_t(degrees), std::abs(t)));
}

}  // namespace

RatioEstimate estimate_ratio(std::span<const double> a, std::span<const double> b) {
  const LogMoments log_a = log_moments(a), log_b = log_moments(b);
  const double difference = log_b.mean - log_a.mean;
  RatioEstimate out{std::exp(difference), not_known, not_known, not_known};
  if (log_a.n < 2 || log_b.n < 2) return out;
  const double error = std::sqrt(log_a.of_mean() + log_b.of_mean());
  if (error == 0) {  // a clock too coarse to show any spread
    out.ci95_low = out.ci95_high = out.ratio;
    out.p_value = difference == 0 ? 1 : 0;
    return out;
  }
  const double degrees = degrees_of_freedom(log_a, log_b);
  const double half_width = t_quantile(degrees) * error;
  out.ci95_low = std::exp(difference - half_width);
  out.ci95_high = std::exp(difference + half_width);
  out.p_value = two_sided(difference / error, degrees);
  return out;
}

double geometric_mean(std::span<const double> values) { return std::exp(log_moments(values).mean); }

LaunchInterval launch_interval(std::span<const double> values) {
  const LogMoments m = log_moments(values);
  if (m.n < 2) throw core::UsageError("one launch has no interval; it needs two at least");
  const double half_width = t_quantile(static_cast<double>(m.n - 1)) * std::sqrt(m.of_mean());
  return {std::exp(m.mean - half_width), std::exp(m.mean + half_width)};
}

std::vector<double> adjust_p_values(std::span<const double> p_values) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p_values.size(); ++i) {
    if (!std::isnan(p_values[i])) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](auto i, auto j) { return p_values[i] < p_values[j]; });
  std::vector<double> out(p_values.begin(), p_values.end());
  double least = 1;
  for (std::size_t rank = order.size(); rank > 0; --rank) {
    const std::size_t i = order[rank - 1];
    least = std::min(least, p_values[i] * static_cast<double>(order.size()) / static_cast<double>(rank));
    out[i] = least;
  }
  return out;
}

std::int64_t launches_to_decide(std::span<const double> a, std::span<const double> b, double tolerance) {
  const LogMoments log_a = log_moments(a), log_b = log_moments(b);
  if (log_a.n < 2 || log_b.n < 2) return 0;
  const double distance = std::abs(log_b.mean - log_a.mean);
  for (std::int64_t n = 2; n <= most_launches; ++n) {
    const auto count = static_cast<double>(n);
    const double half_width = t_quantile(2 * count - 2) * std::sqrt((log_a.variance + log_b.variance) / count);
    if (half_width < distance || distance + half_width < std::log1p(tolerance)) return n;
  }
  return 0;
}

}  // namespace gradmeter::analysis
