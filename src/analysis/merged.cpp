#include "analysis/merged.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_map>

#include "analysis/conditions.hpp"
#include "analysis/ratio.hpp"
#include "core/format.hpp"
#include "core/quoting.hpp"

namespace gradmeter::analysis {
namespace {

using core::Metric;
using core::Point;
using Launches = std::vector<const Point*>;

constexpr double none = std::numeric_limits<double>::quiet_NaN();

std::string identity(const std::string& origin, const Point& p) {
  return fmt::format("{}|{}|{}|{}|{}|{}", origin, core::key_part(p.experiment), core::name(p.status), p.factors.key(),
                     core::to_text(p.metrics[Metric::step]), core::to_text(p.metrics[Metric::epoch]));
}

/// Of a number: `value` of each launch that has one.
template <class Value>
double median_of(const Launches& launches, const Value& value) {
  std::vector<double> values;
  for (const Point* p : launches) {
    if (const double v = value(*p); std::isfinite(v)) values.push_back(v);
  }
  return values.empty() ? none : core::median(values);
}

LaunchInterval interval_of(const Launches& launches, Metric metric) {
  std::vector<double> values;
  for (const Point* p : launches) values.push_back(p->metrics.number(metric));
  const bool positive = std::all_of(values.begin(), values.end(), [](double v) { return v > 0 && std::isfinite(v); });
  return positive ? launch_interval(values) : LaunchInterval{none, none};
}

core::Summary merge_summaries(const Launches& launches, Metric metric) {
  const auto summary_of = [metric](const Point& p) { return p.metrics[metric].as<core::Summary>(); };
  core::Summary out;
  for (const auto& [key, statistic] : core::statistics) {
    out.*statistic =
        median_of(launches, [&](const Point& p) { return summary_of(p) ? summary_of(p)->*statistic : none; });
  }
  for (const Point* p : launches) out.n += summary_of(*p) ? summary_of(*p)->n : 0;
  const auto interval = interval_of(launches, metric);
  out.ci95_low = interval.low;
  out.ci95_high = interval.high;
  return out;
}

/// Metrics that are an end of another's interval: its name, with or without its unit, before the ending.
struct End {
  Metric of;
  double LaunchInterval::*end;
};
using Ends = std::array<std::optional<End>, core::metric_count>;
/// For each metric that is the end of an interval: which one, and of what.
const Ends& ends_of_intervals() {
  static const Ends ends = [] {
    Ends out;
    for (std::size_t i = 0; i < core::metric_count; ++i) {
      for (const auto& [ending, end] :
           {std::pair{"_ci95_low", &LaunchInterval::low}, {"_ci95_high", &LaunchInterval::high}}) {
        const std::string_view name = core::name(static_cast<Metric>(i));
        if (!name.ends_with(ending)) continue;
        const std::string base(name.substr(0, name.size() - std::string_view(ending).size()));
        for (std::size_t of = 0; of < core::metric_count; ++of) {
          const auto candidate = static_cast<Metric>(of);
          const bool is_it = core::name(candidate) == base || core::name(candidate) == base + "_s";
          if (is_it && !out[i]) out[i] = End{candidate, end};
        }
      }
    }
    return out;
  }();
  return ends;
}

core::Value merge_metric(const Launches& launches, Metric metric) {
  const core::Value& last = launches.back()->metrics[metric];
  if (last.as<core::Summary>()) return merge_summaries(launches, metric);
  if (last.as<bool>()) {
    return std::any_of(launches.begin(), launches.end(), [metric](const Point* p) {
      const auto* truth = p->metrics[metric].as<bool>();
      return truth && *truth;
    });
  }
  // A timeline is of one step: that of the last launch.
  if (!last.as<double>() || metric == Metric::timeline_step_s) return last;
  if (const auto& end = ends_of_intervals()[static_cast<std::size_t>(metric)])
    return interval_of(launches, end->of).*(end->end);
  return median_of(launches, [metric](const Point& p) { return p.metrics.number(metric); });
}

/// "wire 93 %, straggle 7 %" as shares; empty where the text is something else.
std::map<std::string, double> shares_of(const std::string& candidates) {
  std::map<std::string, double> out;
  std::istringstream words(candidates);
  std::string answer, sign;
  for (double percent = 0; words >> answer >> percent >> sign;) out[answer] = percent / 100;
  return out;
}

/// One verdict over all launches: each has as many votes, which are its candidates' shares. Where launches lack these,
/// as baselines do, their common word, or undecided.
void merge_verdicts(const Launches& launches, Point& out) {
  constexpr double decided = 2.0 / 3;
  std::map<std::string, double> votes;
  bool all_have_shares = true, all_agree = true;
  std::size_t nothing_lost = 0;  // launches that say so
  for (const Point* p : launches) {
    const auto text = [p](Metric m) { return core::is_null(p->metrics[m]) ? "" : core::to_text(p->metrics[m]); };
    const auto shares = shares_of(text(Metric::bound_by_candidates));
    all_have_shares = all_have_shares && !shares.empty();
    all_agree = all_agree && text(Metric::bound_by) == core::to_text(out.metrics[Metric::bound_by]);
    nothing_lost += text(Metric::bound_by) == "compute";
    for (const auto& [answer, share] : shares) votes[answer] += share / static_cast<double>(launches.size());
  }
  if (!all_have_shares) {
    if (all_agree) return;
    out.metrics[Metric::bound_by] = "undecided";
    out.metrics[Metric::bound_by_probability] = {};
    return;
  }
  std::vector<std::pair<std::string, double>> candidates(votes.begin(), votes.end());
  std::stable_sort(candidates.begin(), candidates.end(), [](auto& a, auto& b) { return a.second > b.second; });
  // A launch leaves a loss that only the machine's state may explain away undecided, however likely "compute" is.
  const bool contradicts = candidates.front().first == "compute" && 3 * nothing_lost < 2 * launches.size();
  const bool is_undecided = candidates.front().second < decided || contradicts;
  out.metrics[Metric::bound_by] = is_undecided ? "undecided" : candidates.front().first;
  out.metrics[Metric::bound_by_probability] = candidates.front().second;
  std::string text;
  for (const auto& [answer, share] : candidates)
    if (share >= 0.005) text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", answer, 100 * share);
  out.metrics[Metric::bound_by_candidates] = text;
}

/// A rank that two thirds of the launches name.
void merge_slowest(const Launches& launches, Point& out) {
  std::map<std::string, std::vector<const Point*>> named;
  for (const Point* p : launches) named[core::to_text(p->metrics[Metric::slowest_rank])].push_back(p);
  for (const Metric m : {Metric::slowest_rank, Metric::slowest_host}) out.metrics[m] = {};
  for (const auto& [rank, by] : named) {
    if (3 * by.size() < 2 * launches.size()) continue;
    for (const Metric m : {Metric::slowest_rank, Metric::slowest_host}) out.metrics[m] = by.back()->metrics[m];
  }
}

Point merge(const Launches& launches) {
  Point out = *launches.back();
  out.raw_times_s.clear();
  if (launches.size() == 1) return out;
  launches.back()->metrics.each([&](Metric m, const core::Value&) { out.metrics[m] = merge_metric(launches, m); });
  if (!core::is_null(out.metrics[Metric::bound_by])) merge_verdicts(launches, out);
  merge_slowest(launches, out);
  return out;
}

}  // namespace

std::vector<MergedPoint> merge_launches(std::span<const core::Run* const> runs) {
  std::unordered_map<std::string, std::size_t> places;
  std::vector<std::vector<SourceRow>> sources;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::string origin = origin_of(runs[r]->info);
    for (std::size_t p = 0; p < runs[r]->points.size(); ++p) {
      const auto [place, is_new] = places.try_emplace(identity(origin, runs[r]->points[p]), sources.size());
      if (is_new) sources.emplace_back();
      sources[place->second].push_back({r, p});
    }
  }
  places.clear();
  std::vector<MergedPoint> out;
  out.reserve(sources.size());
  for (auto& of_point : sources) {
    Launches launches;
    for (const SourceRow& row : of_point) launches.push_back(&runs[row.run]->points[row.point]);
    out.push_back({merge(launches), launches.size(), std::move(of_point)});
  }
  return out;
}

std::vector<MergedPoint> merge_launches(std::span<const core::Run> runs) {
  std::vector<const core::Run*> all;
  for (const core::Run& run : runs) all.push_back(&run);
  return merge_launches(all);
}

}  // namespace gradmeter::analysis
