#include "analysis/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::analysis {
namespace {

constexpr double significance = 0.05;

ComparedPoint join(const std::string& key, const LaunchedPoint* a, const LaunchedPoint* b, int direction) {
  ComparedPoint out;
  out.key = key;
  out.sample = b ? b->sample : a->sample;
  if (a) out.a = a->values;
  if (b) out.b = b->values;
  if (b && b->values.size() < b->launches)
    out.left_out = fmt::format("{} of {} launches {}", b->launches - b->values.size(), b->launches, b->reason);
  if (out.a.empty() || out.b.empty()) {
    const LaunchedPoint* lacking = out.a.empty() ? a : b;
    out.reason = fmt::format("{} side: {}", out.a.empty() ? "first" : "second",
                             lacking ? lacking->reason : std::string("no such point"));
    out.ratio = {NAN, NAN, NAN, NAN};
    return out;
  }
  for (const auto* side : {a, b}) {
    if (side->origins.size() > 1)
      out.reason = fmt::format("the launches of a side are of {} machines or builds", side->origins.size());
  }
  out.ratio = direction > 0 ? estimate_ratio(out.a, out.b) : estimate_ratio(out.b, out.a);  // always of rates
  return out;
}

void judge(ComparedPoint& p, double tolerance) {
  if (p.a.empty() || p.b.empty()) {
    p.verdict = Verdict::missing;
    return;
  }
  p.verdict = Verdict::undecided;
  if (!p.reason.empty()) return;
  if (std::isnan(p.ratio.p_value)) {
    p.reason = "one launch: the spread between launches is not known";
    return;
  }
  if (p.q_value <= significance && (p.ratio.ci95_low > 1 || p.ratio.ci95_high < 1)) {
    p.verdict = p.ratio.ratio > 1 ? Verdict::faster : Verdict::slower;
  } else if (p.ratio.ci95_low >= 1 / (1 + tolerance) && p.ratio.ci95_high <= 1 + tolerance) {
    p.verdict = Verdict::same;
  } else {
    p.launches_needed = launches_to_decide(p.a, p.b, tolerance);
    const auto had = static_cast<std::int64_t>(std::max(p.a.size(), p.b.size()));
    if (p.launches_needed > 0) p.launches_needed = std::max(p.launches_needed, had + 1);
  }
}

double distance(const ComparedPoint& p) { return std::isnan(p.ratio.ratio) ? 0 : std::abs(std::log(p.ratio.ratio)); }

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
    if (of_a != of_b) {
      differing += fmt::format("{}{} ({} and {})", differing.empty() ? "" : ", ", core::name(factor), of_a, of_b);
    }
  }
  if (differing.empty()) {
    throw core::UsageError(fmt::format("{} and {} have no point of --where in common; name others", a.name, b.name));
  }
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
      std::count_if(points.begin(), points.end(), [v](const ComparedPoint& p) { return p.verdict == v; }));
}

Comparison compare(const Side& a, const Side& b, const Selection& selection, double tolerance) {
  const int direction = better_direction(selection.metric);
  const LaunchedPoints of_a(a.runs, selection), of_b(b.runs, selection);
  Comparison out{a.name, b.name, selection, {}};
  bool any = false;
  for (const auto& key : of_a.keys()) {
    any = any || of_b.find(key);
    out.points.push_back(join(key, of_a.find(key), of_b.find(key), direction));
  }
  if (!any) refuse_disjoint(a, b);
  for (const auto& key : of_b.keys()) {
    if (!of_a.find(key)) out.points.push_back(join(key, nullptr, of_b.find(key), direction));
  }
  std::vector<double> p_values;
  for (const auto& p : out.points) p_values.push_back(p.ratio.p_value);
  const auto adjusted = adjust_p_values(p_values);
  for (std::size_t i = 0; i < out.points.size(); ++i) {
    out.points[i].q_value = adjusted[i];
    judge(out.points[i], tolerance);
  }
  std::stable_sort(out.points.begin(), out.points.end(), [](const ComparedPoint& x, const ComparedPoint& y) {
    return x.verdict != y.verdict ? x.verdict < y.verdict : distance(x) > distance(y);
  });
  return out;
}

std::optional<std::string> why_below(const ComparedPoint& p, double bar) {
  if (p.verdict == Verdict::missing) return fmt::format("missing, {}", p.reason);
  if (!p.left_out.empty()) return p.left_out;
  if (std::isnan(p.ratio.ci95_low)) return fmt::format("undecided, {}", p.reason);
  if (p.ratio.ci95_low >= bar) return std::nullopt;
  return fmt::format("{}, the ratio is {:.3f} ({:.3f} to {:.3f})", p.ratio.ci95_high < bar ? "below" : "undecided",
                     p.ratio.ratio, p.ratio.ci95_low, p.ratio.ci95_high);
}

std::vector<BarFailure> below_bar(const Comparison& comparison, double bar) {
  std::vector<BarFailure> out;
  for (const auto& p : comparison.points) {
    if (auto why = why_below(p, bar)) out.push_back({&p, *std::move(why)});
  }
  return out;
}

}  // namespace gradmeter::analysis
