// SPDX-License-Identifier: Apache-2.0
// Judges links and windows by robust deviations, a measure of spread that a few outliers do not change.
#include "analysis/links.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/format.hpp"
#include "core/statistics.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// The median of |difference|, scaled to the standard deviation of a normal distribution (1.4826 times the median
/// absolute deviation), but at least `floor`, since no machine is steadier. `differences`: of values from what is
/// expected of them. Errors: UsageError when empty.
double robust_deviation(std::vector<double> differences, double floor) {
  for (double& x : differences) x = std::fabs(x);
  return std::max(1.4826 * core::median(differences), floor);
}

/// The bounds beyond which a link is slow: see `link_findings`.
constexpr double slow_deviations = 5, slow_window_ratio = 1.1, slow_latency_ratio = 1.25;
constexpr double least_deviation = 0.01;  // share of the usual time; no machine is steadier

/// One direction of one link. It is judged by the time that a message takes.
struct DirectedLink {
  int from, to;
  std::string from_host, to_host;
  double seconds, low, high;  ///< median and its interval [s], which is infinite where it is not known
  double bytes_per_s;
};

/// Links of one kind, whose times can be compared.
struct LinkGroup {
  bool is_latency = false, within_node = false;
  std::vector<DirectedLink> links;
};

std::string text_of(const core::Value& v) { return core::is_null(v) ? "" : core::to_text(v); }

std::optional<DirectedLink> directed_link(const Point& p, Metric metric) {
  const auto* s = p.metrics[metric].as<core::Summary>();
  const auto* from = p.factors[Factor::from_rank].as<std::int64_t>();
  const auto* to = p.factors[Factor::to_rank].as<std::int64_t>();
  if (!s || !from || !to || !(s->median > 0)) return {};
  const double infinity = std::numeric_limits<double>::infinity();
  const bool has_interval = std::isfinite(s->ci95_low) && std::isfinite(s->ci95_high);
  return DirectedLink{.from = static_cast<int>(*from),
                      .to = static_cast<int>(*to),
                      .from_host = text_of(p.metrics[Metric::from_host]),
                      .to_host = text_of(p.metrics[Metric::to_host]),
                      .seconds = s->median,
                      .low = has_interval ? s->ci95_low : -infinity,
                      .high = has_interval ? s->ci95_high : infinity,
                      .bytes_per_s = p.metrics.number(Metric::link_bytes_per_s)};
}

std::vector<LinkGroup> link_groups(std::span<const Point> points) {
  std::map<std::tuple<std::string, bool, bool>, LinkGroup> groups;
  for (const Point& p : points) {
    if (p.experiment != "links" || p.status != core::Status::ok) continue;
    if (text_of(p.factors[Factor::pattern]) != "one-way") continue;
    core::Factors others = p.factors;
    others[Factor::from_rank] = others[Factor::to_rank] = core::Value{};
    for (const Metric metric : {Metric::time_s, Metric::latency_s}) {
      const auto link = directed_link(p, metric);
      if (!link) continue;
      const bool within = link->from_host == link->to_host, is_latency = metric == Metric::latency_s;
      LinkGroup& group = groups[{others.key(), within, is_latency}];
      group.is_latency = is_latency;
      group.within_node = within;
      group.links.push_back(*link);
    }
  }
  std::vector<LinkGroup> out;
  for (auto& [key, group] : groups) out.push_back(std::move(group));
  return out;
}

/// Finds the slow links of a group, and the slow ends: hosts, or within a node ranks.
class LinkClassifier {
 public:
  explicit LinkClassifier(const LinkGroup& g) : group_(g) {
    bytes_ = g.links.front().bytes_per_s * g.links.front().seconds;
    for (const DirectedLink& link : g.links) {
      const auto from = end_of(link.from_host, link.from), to = end_of(link.to_host, link.to);
      ends_[from].sent.push_back(link.seconds);
      ends_[to].received.push_back(link.seconds);
      for (const auto& [end, rank] : {std::pair{from, link.from}, std::pair{to, link.to}}) {
        int& first = ends_[end].rank;
        first = first < 0 ? rank : std::min(first, rank);
      }
    }
    find_usual();
  }

  double usual() const { return usual_; }

  void add_to(std::vector<LinkFinding>& out) {
    judge_ends(out);
    judge_links(out);
    if (!group_.is_latency) judge_ratios(out);  // a round trip covers both ways
  }

 private:
  struct Endpoint {
    std::vector<double> sent, received;
    int rank = -1;
    double send_median = 0, receive_median = 0;  ///< medians of its links [s]; 0: not judged, or found not slow
  };

  std::string end_of(const std::string& host, int rank) const {
    return group_.within_node ? fmt::format("rank {} on {}", rank, host) : host;
  }
  std::string figure(double seconds) const {
    return group_.is_latency ? core::to_text(core::Seconds{seconds})
                             : core::to_text(core::BytesPerSecond{bytes_ / seconds});
  }
  bool judges_ends() const { return ends_.size() >= 4; }

  /// Finds the usual time, and how much links differ from what their ends explain. Each of four hosts is an end of half
  /// of all links, so the median of all links would not do: the usual time is the median of the hosts' medians.
  void find_usual() {
    std::vector<double> times, medians;
    for (const DirectedLink& link : group_.links) times.push_back(link.seconds);
    usual_ = core::median(times);
    for (auto& [name, end] : ends_) {
      if (!judges_ends()) break;
      // An end has no links one way if all of their rows failed.
      for (const auto& [links, to] : {std::pair{&end.sent, &end.send_median}, {&end.received, &end.receive_median}}) {
        if (links->empty()) continue;
        *to = core::median(*links);
        medians.push_back(*to);
      }
    }
    if (judges_ends()) usual_ = core::median(medians);
    std::vector<double> differences;
    for (const DirectedLink& link : group_.links) differences.push_back(link.seconds - expected(link));
    deviation_ = robust_deviation(std::move(differences), least_deviation * usual_);
  }

  double ratio_bound() const { return group_.is_latency ? slow_latency_ratio : slow_window_ratio; }
  bool is_slow(double seconds, double expected) const {
    return seconds >= expected * ratio_bound() && seconds - expected >= slow_deviations * deviation_;
  }
  std::string compared(double seconds, const char* whose = "the usual") const {
    const double ratio = group_.is_latency ? seconds / usual_ : usual_ / seconds;
    return fmt::format("{}, {:.2f} of {} {} ({:.0f} robust deviations)", figure(seconds), ratio, whose, figure(usual_),
                       (seconds - usual_) / deviation_);
  }

  void judge_ends(std::vector<LinkFinding>& out) {
    if (!judges_ends()) return;
    for (auto& [name, end] : ends_) {
      if (!is_slow(end.send_median, usual_)) end.send_median = 0;
      if (!is_slow(end.receive_median, usual_)) end.receive_median = 0;
      const double worst = std::max(end.send_median, end.receive_median);
      if (worst == 0) continue;
      LinkFinding f{.from = end.rank,
                    .is_latency = group_.is_latency,
                    .deviations = (worst - usual_) / deviation_,
                    .ratio = worst / usual_,
                    .ratio_to_expected = worst / usual_,
                    .name = name};
      // A round trip covers both directions, so both medians say the same.
      const std::string way = group_.is_latency                               ? "latency of its links"
                              : end.send_median > 0 && end.receive_median > 0 ? "sends and receives at"
                              : end.send_median > 0                           ? "sends at"
                                                                              : "receives at";
      f.text = fmt::format("{}: {} {}", name, way, compared(worst));
      out.push_back(std::move(f));
    }
  }

  /// The time that the two ends alone explain.
  double expected(const DirectedLink& link) const {
    const double send_median = ends_.at(end_of(link.from_host, link.from)).send_median;
    const double receive_median = ends_.at(end_of(link.to_host, link.to)).receive_median;
    if (!group_.is_latency) return std::max({usual_, send_median, receive_median});
    return usual_ + std::max(0.0, send_median - usual_) + std::max(0.0, receive_median - usual_);
  }

  std::string name_of(const DirectedLink& link, const char* arrow) const {
    return fmt::format("{} (rank {}) {} {} (rank {})", link.from_host, link.from, arrow, link.to_host, link.to);
  }
  const DirectedLink* other_way(const DirectedLink& link) const {
    for (const DirectedLink& other : group_.links)
      if (other.from == link.to && other.to == link.from) return &other;
    return nullptr;
  }
  bool is_slow_link(const DirectedLink& link) const {
    return is_slow(link.seconds, expected(link)) && link.low > expected(link);
  }

  void judge_links(std::vector<LinkFinding>& out) const {
    for (const DirectedLink& link : group_.links) {
      if (!is_slow_link(link)) continue;
      const DirectedLink* other = other_way(link);
      const bool both = other && is_slow_link(*other);
      if (both && link.from > link.to) continue;  // the finding of the other direction names this one
      LinkFinding f{.from = link.from,
                    .to = link.to,
                    .is_latency = group_.is_latency,
                    .both_ways = both,
                    .deviations = (link.seconds - usual_) / deviation_,
                    .ratio = link.seconds / usual_,
                    .ratio_to_expected = ratio_to_expected(link),
                    .name = name_of(link, both ? "<>" : ">")};
      f.text = fmt::format("{}: {} {}", f.name, group_.is_latency ? "latency" : "bandwidth", compared(link.seconds));
      if (both && !group_.is_latency) f.text += fmt::format("; {} back", figure(other->seconds));
      if (!both && other && !group_.is_latency) f.text += fmt::format("; the other way {}", figure(other->seconds));
      out.push_back(std::move(f));
    }
  }

  /// A link's time divided by what its ends explain.
  double ratio_to_expected(const DirectedLink& link) const { return link.seconds / expected(link); }

  /// Links whose two ways differ beyond what the ends explain.
  void judge_ratios(std::vector<LinkFinding>& out) const {
    std::vector<std::pair<const DirectedLink*, const DirectedLink*>> pairs;  // the slower way first
    std::vector<double> logs;
    for (const DirectedLink& link : group_.links) {
      const DirectedLink* back = link.from < link.to ? other_way(link) : nullptr;
      if (!back) continue;
      pairs.emplace_back(&link, back);
      if (ratio_to_expected(link) <= ratio_to_expected(*back)) std::swap(pairs.back().first, pairs.back().second);
      logs.push_back(std::log(ratio_to_expected(link) / ratio_to_expected(*back)));
    }
    if (pairs.size() < 2) return;
    const double middle = core::median(logs);
    for (double& l : logs) l -= middle;
    const double deviation = robust_deviation(std::move(logs), least_deviation);
    for (const auto& [slow, fast] : pairs) {
      const double ratio = ratio_to_expected(*slow) / ratio_to_expected(*fast),
                   deviations = std::log(ratio) / deviation;
      const bool apart = slow->low / expected(*slow) > fast->high / expected(*fast);
      if (ratio < slow_window_ratio || deviations < slow_deviations || !apart) continue;
      if (is_slow_link(*slow)) continue;  // judge_links() names it
      LinkFinding f{.from = slow->from,
                    .to = slow->to,
                    .asymmetric = true,
                    .deviations = deviations,
                    .ratio = ratio,
                    .ratio_to_expected = ratio,
                    .name = name_of(*slow, ">")};
      f.text = fmt::format("{}: {}, the other way {}: {:.2f} times ({:.0f} robust deviations)", f.name,
                           figure(slow->seconds), figure(fast->seconds), ratio, deviations);
      out.push_back(std::move(f));
    }
  }

  const LinkGroup& group_;
  double usual_ = 0, deviation_ = 0;  // usual time and deviation [s]
  double bytes_ = 0;                  // bytes of a window: the same for all links of a group
  std::map<std::string, Endpoint> ends_;
};

}  // namespace

std::vector<LinkFinding> link_findings(std::span<const Point> points) {
  std::vector<LinkFinding> out;
  for (const LinkGroup& group : link_groups(points)) LinkClassifier(group).add_to(out);
  std::ranges::stable_sort(out, std::greater{}, &LinkFinding::ratio_to_expected);
  return out;
}

std::vector<std::string> links_below(std::span<const Point> points, double share) {
  std::vector<std::string> out;
  std::size_t undecided = 0;
  for (const LinkGroup& group : link_groups(points)) {
    const double usual = LinkClassifier(group).usual();
    for (const DirectedLink& link : group.links) {
      if (!std::isfinite(link.low)) {
        ++undecided;
        continue;
      }
      if (link.low * share <= usual) continue;
      out.push_back(fmt::format("{} (rank {}) > {} (rank {}): {} {:.2f} of the usual", link.from_host, link.from,
                                link.to_host, link.to, group.is_latency ? "latency" : "bandwidth",
                                group.is_latency ? link.seconds / usual : usual / link.seconds));
    }
  }
  if (undecided > 0)
    out.push_back(fmt::format("{} links have no interval, so that they are undecided; give more time", undecided));
  return out;
}

namespace {

constexpr double least_soak_deviation = 0.02;  // share of the usual time
constexpr double disturbed_deviations = 5, disturbed_ratio = 1.1;
constexpr double drift_sigmas = 3, least_drift = 0.02, outlier_ratio = 10;
constexpr std::size_t most_outliers = 5, fewest_intervals = 6;

/// The intervals of one rank, in the order of their numbers.
struct Series {
  std::string host;
  std::map<std::int64_t, std::size_t> place;  ///< by number of an interval: its index in the vectors below
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
    std::vector<double> differences;
    for (const double m : s.median_s) differences.push_back(m - s.usual_s);
    s.deviation_s = robust_deviation(std::move(differences), least_soak_deviation * s.usual_s);
  }
  return out;
}

/// The end of a soak's last interval [s], from the middles of its intervals. They adjoin, and the last one may be
/// shorter than the others. An interval whose neighbour before it is not known is taken to be as long as the mean of
/// those in between.
double soak_end_s(std::span<const core::Point> points) {
  std::map<std::int64_t, double> middles;
  for (const auto& p : points) {
    const auto* interval = p.factors[Factor::interval].as<std::int64_t>();
    const double middle = p.metrics.number(Metric::elapsed_s);
    if (p.experiment == "soak" && interval && std::isfinite(middle)) middles[*interval] = middle;
  }
  double end = 0, middle_before = 0, number_before = -0.5;
  bool adjoins = middles.contains(0);
  for (const auto& [interval, middle] : middles) {
    const auto number = static_cast<double>(interval);
    adjoins = adjoins && (interval == 0 || middles.contains(interval - 1));
    const double length = (middle - middle_before) / (number - number_before);
    end = adjoins ? 2 * middle - end : middle + length / 2;
    middle_before = middle;
    number_before = number;
  }
  return end;
}

bool is_disturbed(const Series& s, std::size_t i) {
  return s.median_s[i] >= disturbed_ratio * s.usual_s &&
         s.median_s[i] - s.usual_s >= disturbed_deviations * s.deviation_s;
}

/// Adds a disturbed interval to the disturbance of the same rank that ended at most `gap_s` before, or else as a new
/// one.
void add_interval(std::vector<SoakDisturbance>& disturbances, const SoakDisturbance& interval, double gap_s) {
  for (auto& d : disturbances) {
    if (d.rank != interval.rank || interval.from_s - d.to_s > gap_s) continue;
    d.to_s = interval.to_s;
    d.ratio = std::max(d.ratio, interval.ratio);
    d.deviations = std::max(d.deviations, interval.deviations);
    return;
  }
  disturbances.push_back(interval);
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
    if (2 * now.size() > ranks.size() && ranks.size() > 2) {  // more than half of the ranks: no single rank is named
      SoakDisturbance shared_disturbance =
          *std::ranges::max_element(now, [](auto& a, auto& b) { return a.ratio < b.ratio; });
      shared_disturbance.rank = -1;
      shared_disturbance.host.clear();
      now = {shared_disturbance};
    }
    for (const auto& d : now) add_interval(out, d, gap_s);
  }
  return out;
}

/// The slope of Theil and Sen over the whole soak, as a share of the usual time, and the statistic of Mann and
/// Kendall's test.
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
    for (const auto& [rank, s] : ranks)
      if (i < s.median_s.size()) now.push_back(s.median_s[i] / s.usual_s);
    together.push_back(core::median(now));
  }
  const SoakDrift shared_drift = trend(together, 1);
  if (is_drift(shared_drift)) out.push_back(shared_drift);
  for (const auto& [rank, s] : ranks) {
    SoakDrift own = trend(s.median_s, s.usual_s);
    own.rank = rank;
    own.host = s.host;
    // A drift of all ranks is named once.
    if (is_drift(own) && std::fabs(own.share - (is_drift(shared_drift) ? shared_drift.share : 0)) > least_drift)
      out.push_back(own);
  }
  return out;
}

std::vector<SoakDisturbance> outliers_of(const std::map<int, Series>& ranks) {
  std::vector<SoakDisturbance> out;
  for (const auto& [rank, s] : ranks) {
    for (std::size_t i = 0; i < s.longest_s.size(); ++i) {
      const double ratio = s.longest_s[i] / s.usual_s;
      if (ratio >= outlier_ratio)
        out.push_back({.rank = rank, .host = s.host, .from_s = s.elapsed_s[i], .to_s = s.elapsed_s[i], .ratio = ratio});
    }
  }
  std::ranges::stable_sort(out, [](const auto& a, const auto& b) { return a.ratio > b.ratio; });
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
  out.intervals = first.interval.size();
  out.seconds = soak_end_s(points);
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
    out.push_back(fmt::format("a single window of {:.0f} times the usual, about {:.1f} s: {}", o.ratio, o.from_s,
                              who(o.rank, o.host)));
  }
  if (out.empty()) out.emplace_back("no disturbance, no drift, no outlier");
  return out;
}

}  // namespace gradmeter::analysis
