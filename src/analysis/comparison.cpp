// SPDX-License-Identifier: Apache-2.0
#include "analysis/comparison.hpp"

#include <boost/math/distributions/students_t.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::analysis {
namespace {

constexpr double not_known = std::numeric_limits<double>::quiet_NaN();
constexpr double confidence_tail = 0.025;

struct LogMoments {
  double mean = 0;
  double variance = not_known;  ///< variance between launches; NaN for a single launch
  std::size_t n = 0;
  double variance_of_mean() const { return variance / static_cast<double>(n); }
};

LogMoments log_moments(std::span<const double> values) {
  if (values.empty()) throw core::UsageError("a side has no launch; a ratio needs at least one of each");
  LogMoments m{.n = values.size()};
  for (const double v : values) {
    if (!(v > 0) || !std::isfinite(v))
      throw core::UsageError(fmt::format("{} has no logarithm; a ratio needs positive numbers", v));
    m.mean += std::log(v);
  }
  m.mean /= static_cast<double>(m.n);
  if (m.n < 2) return m;
  if (std::ranges::adjacent_find(values, std::not_equal_to()) == values.end()) {
    m.mean = std::log(values.front());  // the sum above is rounded, which would look like a spread
    m.variance = 0;
    return m;
  }
  double squares = 0;
  for (const double v : values) squares += (std::log(v) - m.mean) * (std::log(v) - m.mean);
  m.variance = squares / static_cast<double>(m.n - 1);
  return m;
}

double t_quantile(double degrees) {
  return boost::math::quantile(boost::math::complement(boost::math::students_t(degrees), confidence_tail));
}

/// The degrees of freedom by Welch and Satterthwaite.
double degrees_of_freedom(const LogMoments& a, const LogMoments& b) {
  const double variance = a.variance_of_mean() + b.variance_of_mean();
  return variance * variance /
         (a.variance_of_mean() * a.variance_of_mean() / static_cast<double>(a.n - 1) +
          b.variance_of_mean() * b.variance_of_mean() / static_cast<double>(b.n - 1));
}

double two_sided(double t, double degrees) {
  return 2 * boost::math::cdf(boost::math::complement(boost::math::students_t(degrees), std::abs(t)));
}

}  // namespace

RatioEstimate estimate_ratio(std::span<const double> a, std::span<const double> b) {
  const LogMoments log_a = log_moments(a), log_b = log_moments(b);
  const double difference = log_b.mean - log_a.mean;
  RatioEstimate out{.ratio = {.value = std::exp(difference)}};
  if (log_a.n < 2 || log_b.n < 2) return out;
  const double error = std::sqrt(log_a.variance_of_mean() + log_b.variance_of_mean());
  if (error == 0) {  // a clock or a log too coarse to show any spread
    if (difference != 0) return out;
    out.ratio.low = out.ratio.high = out.ratio.value;
    out.p_value = 1;
    return out;
  }
  const double degrees = degrees_of_freedom(log_a, log_b);
  const double half_width = t_quantile(degrees) * error;
  out.ratio.low = std::exp(difference - half_width);
  out.ratio.high = std::exp(difference + half_width);
  out.p_value = two_sided(difference / error, degrees);
  return out;
}

double geometric_mean(std::span<const double> values) {
  const LogMoments m = log_moments(values);
  return m.variance > 0 ? std::exp(m.mean) : values.front();
}

Estimate launch_interval(std::span<const double> values) {
  const LogMoments m = log_moments(values);
  if (m.n < 2) throw core::UsageError("one launch has no interval; it needs two at least");
  const double half_width = t_quantile(static_cast<double>(m.n - 1)) * std::sqrt(m.variance_of_mean());
  return {std::exp(m.mean), std::exp(m.mean - half_width), std::exp(m.mean + half_width)};
}

std::vector<double> adjust_p_values(std::span<const double> p_values) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p_values.size(); ++i)
    if (!std::isnan(p_values[i])) order.push_back(i);
  std::ranges::sort(order, [&](auto i, auto j) { return p_values[i] < p_values[j]; });
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

namespace {

constexpr double significance = 0.05;

ComparedPoint join(const std::string& key, const LaunchedPoint* a, const LaunchedPoint* b, int direction) {
  ComparedPoint out;
  out.key = key;
  out.last_point = b ? b->last_point : a->last_point;
  if (a) out.a = a->values;
  if (b) out.b = b->values;
  for (const LaunchedPoint* side : {a, b}) {
    if (!side) continue;
    out.oversubscribed = out.oversubscribed || side->oversubscribed;
    out.disturbed = out.disturbed || side->disturbed;
    if (side->values.size() == side->launches) continue;
    (side == a ? out.left_out_of_first : out.left_out_of_second) =
        fmt::format("{} of {} launches {}", side->launches - side->values.size(), side->launches, side->reason);
  }
  if (out.a.empty() || out.b.empty()) {
    const LaunchedPoint* lacking = out.a.empty() ? a : b;
    out.reason = fmt::format("{} side: {}", out.a.empty() ? "first" : "second",
                             lacking ? lacking->reason : std::string("no such point"));
    out.left_out_of_first = out.left_out_of_second = "";  // the reason says it
    return out;
  }
  for (const auto* side : {a, b}) {
    if (side->not_positive == 0) continue;
    out.reason = fmt::format("{} of {} launches of the {} side are not positive, and have no ratio", side->not_positive,
                             side->launches, side == a ? "first" : "second");
    out.left_out_of_first = out.left_out_of_second = "";
    return out;
  }
  const auto [ratio, p_value] =
      direction > 0 ? estimate_ratio(out.a, out.b) : estimate_ratio(out.b, out.a);  // the ratio is always one of rates
  for (const auto* side : {a, b}) {
    if (side->origins.size() < 2) continue;
    out.reason = fmt::format("the launches of a side are of {} machines, builds or conditions", side->origins.size());
    out.ratio.value = ratio.value;
    return out;
  }
  out.ratio = ratio;
  out.p_value = p_value;
  return out;
}

void judge(ComparedPoint& p, double tolerance) {
  if (p.a.empty() || p.b.empty()) {
    p.verdict = Verdict::missing;
    return;
  }
  p.verdict = Verdict::undecided;
  if (!p.reason.empty()) return;
  if (std::isnan(p.p_value)) {
    p.reason = std::min(p.a.size(), p.b.size()) < 2
                   ? "one launch: the spread between launches is not known"
                   : "the launches of a side agree in all digits: the spread between launches is not known";
    return;
  }
  if (p.q_value <= significance && (p.ratio.low > 1 || p.ratio.high < 1)) {
    p.verdict = p.ratio.value > 1 ? Verdict::faster : Verdict::slower;
  } else if (p.ratio.low >= 1 / (1 + tolerance) && p.ratio.high <= 1 + tolerance) {
    p.verdict = Verdict::same;
  } else {
    p.launches_needed = launches_to_decide(p.a, p.b, tolerance);
    const auto most_had = static_cast<std::int64_t>(std::max(p.a.size(), p.b.size()));
    if (p.launches_needed > 0) p.launches_needed = std::max(p.launches_needed, most_had + 1);
  }
}

double distance(const ComparedPoint& p) { return std::isnan(p.ratio.value) ? 0 : std::abs(std::log(p.ratio.value)); }

std::string values_of(core::Factor factor, const Side& side) {
  std::set<std::string> values;
  for (const auto& run : side.runs)
    for (const auto& point : run.points) values.insert(core::to_text(point.factors[factor]));
  return fmt::format("{}", fmt::join(values, ", "));
}

[[noreturn]] void refuse_disjoint(const Side& a, const Side& b) {
  std::string differing;
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto factor = static_cast<core::Factor>(i);
    const std::string of_a = values_of(factor, a), of_b = values_of(factor, b);
    if (of_a != of_b)
      differing += fmt::format("{}{} ({} and {})", differing.empty() ? "" : ", ", core::name(factor), of_a, of_b);
  }
  if (differing.empty())
    throw core::UsageError(fmt::format("{} and {} have no point of --where in common; name others", a.name, b.name));
  throw core::UsageError(
      fmt::format("{} and {} have no point in common: they differ in {}; --ignore FACTOR, or compare --by it", a.name,
                  b.name, differing));
}

}  // namespace

std::string_view name(Verdict v) {
  switch (v) {
    case Verdict::slower:
      return "slower";
    case Verdict::faster:
      return "faster";
    case Verdict::undecided:
      return "undecided";
    case Verdict::same:
      return "same";
    case Verdict::missing:
      return "missing";
  }
  return "?";
}

std::size_t Comparison::count(Verdict v) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(points, [v](const ComparedPoint& p) { return p.verdict == v; }));
}

Comparison compare(const Side& a, const Side& b, const PointSelection& selection, double tolerance) {
  for (const Side* side : {&a, &b}) refuse_predicted(*side);
  const int direction = better_direction(selection.metric);
  const LaunchedPoints of_a(a.runs, selection), of_b(b.runs, selection);
  Comparison out{a.name, b.name, selection, {}};
  bool any = false;
  for (const auto& key : of_a.keys()) {
    any = any || of_b.find(key);
    out.points.push_back(join(key, of_a.find(key), of_b.find(key), direction));
  }
  if (!any) refuse_disjoint(a, b);
  for (const auto& key : of_b.keys())
    if (!of_a.find(key)) out.points.push_back(join(key, nullptr, of_b.find(key), direction));
  std::vector<double> p_values;
  for (const auto& p : out.points) p_values.push_back(p.p_value);
  const auto adjusted = adjust_p_values(p_values);
  for (std::size_t i = 0; i < out.points.size(); ++i) {
    out.points[i].q_value = adjusted[i];
    judge(out.points[i], tolerance);
  }
  std::ranges::stable_sort(out.points, [](const ComparedPoint& x, const ComparedPoint& y) {
    return x.verdict != y.verdict ? x.verdict < y.verdict : distance(x) > distance(y);
  });
  return out;
}

std::optional<std::string> why_below(const ComparedPoint& p, double bar) {
  if (p.verdict == Verdict::missing) return fmt::format("missing, {}", p.reason);
  if (!p.left_out_of_second.empty()) return p.left_out_of_second;
  if (!p.reason.empty()) return fmt::format("undecided, {}", p.reason);
  if (p.ratio.low >= bar) return std::nullopt;
  return fmt::format("{}, the ratio is {:.3f} ({:.3f} to {:.3f})", p.ratio.high < bar ? "below" : "undecided",
                     p.ratio.value, p.ratio.low, p.ratio.high);
}

}  // namespace gradmeter::analysis
