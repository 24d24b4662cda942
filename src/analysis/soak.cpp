#include "analysis/soak.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/robust.hpp"
#include "core/format.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;

constexpr double least_share_apart = 0.02;  // of the usual
constexpr double disturbed_deviations = 5, disturbed_ratio = 1.1;
constexpr double drift_sigmas = 3, least_drift = 0.02, outlier_ratio = 10;
constexpr std::size_t most_outliers = 5, fewest_intervals = 6;

/// One rank's intervals, by their number.
struct Series {
  std::string host;
  std::map<std::int64_t, std::size_t> place;  ///< of an interval
  std::vector<std::int64_t> interval;
  std::vector<double> elapsed_s, median_s, longest_s;
  double usual_s = 0, deviation_s = 0;
};

std::map<int, Series> series_of(std::span<const core::Point> points) {
  std::map<int, std::map<std::int64_t, const core::Point*>> ordered;
  for (const auto& p : points) {
    const auto* rank = p.factors[Factor::from_rank].as<std::int64_t>();
    const auto* interval = p.factors[Factor::interval].as<std::int64_t>();
    const bool timed = p.metrics[Metric::time_s].as<core::Summary>();
    if (p.experiment != "soak" || p.status != core::Status::ok || !rank || !interval || !timed) continue;
    ordered[static_cast<int>(*rank)][*interval] = &p;
  }
  std::map<int, Series> out;
  for (const auto& [rank, intervals] : ordered) {
    Series& s = out[rank];
    for (const auto& [interval, p] : intervals) {
      const auto& windows = p->metrics[Metric::time_s].get<core::Summary>();
      s.host = core::to_text(p->metrics[Metric::from_host]);
      s.place[interval] = s.interval.size();
      s.interval.push_back(interval);
      s.elapsed_s.push_back(p->metrics.number(Metric::elapsed_s));
      s.median_s.push_back(windows.median);
      s.longest_s.push_back(windows.max);
    }
    s.usual_s = core::median(s.median_s);
    std::vector<double> off;
    for (const double m : s.median_s) off.push_back(m - s.usual_s);
    s.deviation_s = robust_deviation(std::move(off), least_share_apart * s.usual_s);
  }
  return out;
}

bool is_disturbed(const Series& s, std::size_t i) {
  return s.median_s[i] >= disturbed_ratio * s.usual_s &&
         s.median_s[i] - s.usual_s >= disturbed_deviations * s.deviation_s;
}

/// Intervals that follow each other directly, or with one between, are one disturbance.
void add_interval(std::vector<SoakDisturbance>& open, const SoakDisturbance& now, double gap_s) {
  for (auto& d : open) {
    if (d.rank != now.rank || now.from_s - d.to_s > gap_s) continue;
    d.to_s = now.to_s;
    d.ratio = std::max(d.ratio, now.ratio);
    d.deviations = std::max(d.deviations, now.deviations);
    return;
  }
  open.push_back(now);
}

std::vector<SoakDisturbance> disturbances_of(const std::map<int, Series>& ranks) {
  std::vector<SoakDisturbance> out;
  const Series& first = ranks.begin()->second;
  const std::size_t count = first.interval.size();
  const double gap_s =
      count > 1 ? 2.5 * (first.elapsed_s.back() - first.elapsed_s.front()) / static_cast<double>(count - 1) : 0;
  for (const std::int64_t interval : first.interval) {
    std::vector<SoakDisturbance> now;
    for (const auto& [rank, s] : ranks) {
      const auto at = s.place.find(interval);
      if (at == s.place.end() || !is_disturbed(s, at->second)) continue;
      const double t = s.elapsed_s[at->second], m = s.median_s[at->second];
      now.push_back({.rank = rank,
                     .host = s.host,
                     .from_s = t,
                     .to_s = t,
                     .ratio = m / s.usual_s,
                     .deviations = (m - s.usual_s) / s.deviation_s});
    }
    if (2 * now.size() > ranks.size() && ranks.size() > 2) {  // nobody in particular
      SoakDisturbance all =
          *std::max_element(now.begin(), now.end(), [](auto& a, auto& b) { return a.ratio < b.ratio; });
      all.rank = -1;
      all.host.clear();
      now = {all};
    }
    for (const auto& d : now) add_interval(out, d, gap_s);
  }
  return out;
}

/// Theil and Sen's slope over the whole, as a share of the usual; Mann and Kendall's statistic.
SoakDrift trend(const std::vector<double>& values, double usual) {
  std::vector<double> slopes;
  double sum = 0;
  const auto n = static_cast<double>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = i + 1; j < values.size(); ++j) {
      slopes.push_back((values[j] - values[i]) / static_cast<double>(j - i));
      sum += values[j] > values[i] ? 1 : values[j] < values[i] ? -1 : 0;
    }
  }
  if (slopes.empty()) return {};
  const double deviation = std::sqrt(n * (n - 1) * (2 * n + 5) / 18);
  return {.share = core::median(slopes) * (n - 1) / usual, .sigmas = sum / deviation};
}

bool is_drift(const SoakDrift& d) { return std::fabs(d.sigmas) > drift_sigmas && std::fabs(d.share) > least_drift; }

std::vector<SoakDrift> drifts_of(const std::map<int, Series>& ranks) {
  const std::size_t count = ranks.begin()->second.interval.size();
  if (count < fewest_intervals) return {};
  std::vector<SoakDrift> out;
  std::vector<double> together;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<double> now;
    for (const auto& [rank, s] : ranks) {
      if (i < s.median_s.size()) now.push_back(s.median_s[i] / s.usual_s);
    }
    together.push_back(core::median(now));
  }
  const SoakDrift all = trend(together, 1);
  if (is_drift(all)) out.push_back(all);
  for (const auto& [rank, s] : ranks) {
    SoakDrift own = trend(s.median_s, s.usual_s);
    own.rank = rank;
    own.host = s.host;
    // What all ranks do is said once.
    if (is_drift(own) && std::fabs(own.share - (is_drift(all) ? all.share : 0)) > least_drift) out.push_back(own);
  }
  return out;
}

std::vector<SoakOutlier> outliers_of(const std::map<int, Series>& ranks) {
  std::vector<SoakOutlier> out;
  for (const auto& [rank, s] : ranks) {
    for (std::size_t i = 0; i < s.longest_s.size(); ++i) {
      const double ratio = s.longest_s[i] / s.usual_s;
      if (ratio >= outlier_ratio)
        out.push_back({.rank = rank, .host = s.host, .elapsed_s = s.elapsed_s[i], .ratio = ratio});
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.ratio > b.ratio; });
  if (out.size() > most_outliers) out.resize(most_outliers);
  return out;
}

std::string who(int rank, const std::string& host) {
  return rank < 0 ? "most ranks at once" : fmt::format("{} (rank {})", host, rank);
}

}  // namespace

SoakFindings soak_findings(std::span<const core::Point> points) {
  const auto ranks = series_of(points);
  SoakFindings out;
  if (ranks.empty()) return out;
  const Series& first = ranks.begin()->second;
  out.ranks = ranks.size();
  out.intervals = first.interval.size();
  out.seconds = first.elapsed_s.back();
  std::vector<double> usual;
  for (const auto& [rank, s] : ranks) usual.push_back(s.usual_s);
  out.usual_s = core::median(usual);
  out.disturbances = disturbances_of(ranks);
  out.drifts = drifts_of(ranks);
  out.outliers = outliers_of(ranks);
  return out;
}

std::vector<std::string> soak_sentences(const SoakFindings& f) {
  std::vector<std::string> out;
  for (const auto& d : f.disturbances) {
    const std::string when = d.from_s == d.to_s ? fmt::format("at {:.1f} s", d.from_s)
                                                : fmt::format("from {:.1f} s to {:.1f} s", d.from_s, d.to_s);
    out.push_back(fmt::format("disturbed {}: {}, {:.2f} times {} usual window ({:.0f} robust deviations)", when,
                              who(d.rank, d.host), d.ratio, d.rank < 0 ? "their" : "its", d.deviations));
  }
  for (const auto& d : f.drifts) {
    out.push_back(fmt::format("drift: windows of {} took {:.1f} % {} at the end than at the begin ({:.1f} sigmas)",
                              d.rank < 0 ? "all ranks" : who(d.rank, d.host), 100 * std::fabs(d.share),
                              d.share > 0 ? "longer" : "less", std::fabs(d.sigmas)));
  }
  for (const auto& o : f.outliers) {
    out.push_back(fmt::format("a single window of {:.0f} times the usual, about {:.1f} s: {}", o.ratio, o.elapsed_s,
                              who(o.rank, o.host)));
  }
  if (out.empty()) out.emplace_back("no disturbance, no drift, no outlier");
  return out;
}

}  // namespace gradmeter::analysis
