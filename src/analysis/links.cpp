#include "analysis/links.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "analysis/robust.hpp"
#include "core/format.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using What = LinkFinding::What;

constexpr double least_deviation = 0.01;  // of the median: machines are not steadier

/// One way of one link, by its time: what a slow link has more of.
struct Way {
  int from, to;
  std::string from_host, to_host;
  double seconds, low, high;  ///< median and its interval [s]
  double bytes_per_s;
};

/// Links of one kind, whose times can be compared.
struct Kind {
  bool latency = false, within_node = false;
  std::vector<Way> ways;
};

std::string text_of(const core::Value& v) { return core::is_null(v) ? "" : core::to_text(v); }

std::optional<Way> way_of(const Point& p, Metric metric) {
  const auto* s = p.metrics[metric].as<core::Summary>();
  const auto* from = p.factors[Factor::from_rank].as<std::int64_t>();
  const auto* to = p.factors[Factor::to_rank].as<std::int64_t>();
  if (!s || !from || !to || !(s->median > 0)) return {};
  const bool has_interval = std::isfinite(s->ci95_low);
  return Way{.from = static_cast<int>(*from),
             .to = static_cast<int>(*to),
             .from_host = text_of(p.metrics[Metric::from_host]),
             .to_host = text_of(p.metrics[Metric::to_host]),
             .seconds = s->median,
             .low = has_interval ? s->ci95_low : s->median,
             .high = has_interval ? s->ci95_high : s->median,
             .bytes_per_s = p.metrics.number(Metric::link_bytes_per_s)};
}

std::vector<Kind> kinds_of(std::span<const Point> points) {
  std::map<std::tuple<std::string, bool, bool>, Kind> kinds;
  for (const Point& p : points) {
    if (p.experiment != "links" || p.status != core::Status::ok) continue;
    if (text_of(p.factors[Factor::pattern]) != "one-way") continue;
    core::Factors others = p.factors;
    others[Factor::from_rank] = others[Factor::to_rank] = core::Value{};
    for (const Metric metric : {Metric::time_s, Metric::latency_s}) {
      const auto way = way_of(p, metric);
      if (!way) continue;
      const bool within = way->from_host == way->to_host, latency = metric == Metric::latency_s;
      Kind& kind = kinds[{others.key(), within, latency}];
      kind.latency = latency;
      kind.within_node = within;
      kind.ways.push_back(*way);
    }
  }
  std::vector<Kind> out;
  for (auto& [key, kind] : kinds) out.push_back(std::move(kind));
  return out;
}

struct Robust {
  double median = 0, deviation = 0;
};
double median_time(const Kind& k) {
  std::vector<double> times;
  for (const Way& w : k.ways) times.push_back(w.seconds);
  return core::median(times);
}

/// What is judged as one: a host, or within a node a rank.
std::string end_of(const Kind& k, const std::string& host, int rank) {
  return k.within_node ? fmt::format("rank {} on {}", rank, host) : host;
}

std::string figure(const Kind& k, double seconds, double bytes_of_way) {
  return k.latency ? core::to_text(core::Seconds{seconds})
                   : core::to_text(core::BytesPerSecond{bytes_of_way / seconds});
}

class Judge {
 public:
  Judge(const Kind& k, const LinkBounds& b) : kind_(k), bounds_(b) {
    // Bytes of a window: the same for all links of a kind.
    bytes_ = k.ways.front().bytes_per_s * k.ways.front().seconds;
    for (const Way& w : k.ways) {
      const auto from = end_of(k, w.from_host, w.from), to = end_of(k, w.to_host, w.to);
      ends_[from].sent.push_back(w.seconds);
      ends_[to].received.push_back(w.seconds);
      for (const auto& [end, rank] : {std::pair{from, w.from}, std::pair{to, w.to}}) {
        int& first = ends_[end].rank;
        first = first < 0 ? rank : std::min(first, rank);
      }
    }
    find_usual();
  }

  double usual() const { return all_.median; }

  void add_to(std::vector<LinkFinding>& out) {
    judge_ends(out);
    judge_links(out);
    if (!kind_.latency) judge_ratios(out);  // a round trip goes both ways
  }

 private:
  struct End {
    std::vector<double> sent, received;
    int rank = -1;
    double sends = 0, receives = 0;  ///< medians where they are slow; else 0
  };

  bool has_ends() const { return ends_.size() >= 4; }

  /// What is usual, and by how much links differ from what their ends explain. One of four hosts has half of all
  /// links: so the median is that of the hosts' medians.
  void find_usual() {
    all_.median = median_time(kind_);
    std::vector<double> medians;
    for (auto& [name, end] : ends_) {
      if (!has_ends()) break;
      end.sends = core::median(end.sent);
      end.receives = core::median(end.received);
      medians.insert(medians.end(), {end.sends, end.receives});
    }
    if (has_ends()) all_.median = core::median(medians);
    std::vector<double> off;
    for (const Way& w : kind_.ways) off.push_back(w.seconds - expected(w));
    all_.deviation = robust_deviation(std::move(off), least_deviation * all_.median);
  }

  double ratio_bound() const { return kind_.latency ? bounds_.latency_ratio : bounds_.window_ratio; }
  bool is_slow(double seconds, double expected) const {
    return seconds >= expected * ratio_bound() && seconds - expected >= bounds_.deviations * all_.deviation;
  }
  std::string compared(double seconds, const char* whose = "the usual") const {
    const double ratio = kind_.latency ? seconds / all_.median : all_.median / seconds;
    return fmt::format("{}, {:.2f} of {} {} ({:.0f} robust deviations)", figure(kind_, seconds, bytes_), ratio, whose,
                       figure(kind_, all_.median, bytes_), (seconds - all_.median) / all_.deviation);
  }

  void judge_ends(std::vector<LinkFinding>& out) {
    if (!has_ends()) return;
    for (auto& [name, end] : ends_) {
      if (!is_slow(end.sends, all_.median)) end.sends = 0;
      if (!is_slow(end.receives, all_.median)) end.receives = 0;
      const double worst = std::max(end.sends, end.receives);
      if (worst == 0) continue;
      LinkFinding f{.what = What::host,
                    .latency = kind_.latency,
                    .deviations = (worst - all_.median) / all_.deviation,
                    .ratio = worst / all_.median,
                    .from = end.rank,
                    .name = name};
      // A round trip's way is one: both medians say the same.
      const std::string way = kind_.latency                       ? "latency of its links"
                              : end.sends > 0 && end.receives > 0 ? "sends and receives at"
                              : end.sends > 0                     ? "sends at"
                                                                  : "receives at";
      f.text = fmt::format("{}: {} {}", name, way, compared(worst));
      out.push_back(std::move(f));
    }
  }

  /// What the two ends alone explain.
  double expected(const Way& w) const {
    const double sends = ends_.at(end_of(kind_, w.from_host, w.from)).sends;
    const double receives = ends_.at(end_of(kind_, w.to_host, w.to)).receives;
    if (!kind_.latency) return std::max({all_.median, sends, receives});
    return all_.median + std::max(0.0, sends - all_.median) + std::max(0.0, receives - all_.median);
  }

  std::string name_of(const Way& w, const char* arrow) const {
    return fmt::format("{} (rank {}) {} {} (rank {})", w.from_host, w.from, arrow, w.to_host, w.to);
  }
  const Way* other_way(const Way& w) const {
    for (const Way& o : kind_.ways) {
      if (o.from == w.to && o.to == w.from) return &o;
    }
    return nullptr;
  }
  bool is_slow_link(const Way& w) const { return is_slow(w.seconds, expected(w)) && w.low > expected(w); }

  void judge_links(std::vector<LinkFinding>& out) const {
    for (const Way& w : kind_.ways) {
      if (!is_slow_link(w)) continue;
      const Way* other = other_way(w);
      const bool both = other && is_slow_link(*other);
      if (both && w.from > w.to) continue;  // said with the first
      LinkFinding f{.what = What::link,
                    .latency = kind_.latency,
                    .both_ways = both,
                    .deviations = (w.seconds - all_.median) / all_.deviation,
                    .ratio = w.seconds / all_.median,
                    .from = w.from,
                    .to = w.to,
                    .name = name_of(w, both ? "<>" : ">")};
      f.text = fmt::format("{}: {} {}", f.name, kind_.latency ? "latency" : "bandwidth", compared(w.seconds));
      if (both && !kind_.latency) f.text += fmt::format("; {} back", figure(kind_, other->seconds, bytes_));
      if (!both && other && !kind_.latency) {
        f.text += fmt::format("; the other way {}", figure(kind_, other->seconds, bytes_));
      }
      out.push_back(std::move(f));
    }
  }

  /// What the ends do not explain of the difference between the two ways.
  void judge_ratios(std::vector<LinkFinding>& out) const {
    struct Pair {
      const Way *slow, *fast;
      double ratio;
    };
    std::vector<Pair> pairs;
    std::vector<double> logs;
    for (const Way& w : kind_.ways) {
      const Way* o = w.from < w.to ? other_way(w) : nullptr;
      if (!o) continue;
      const double there = w.seconds / expected(w), back = o->seconds / expected(*o);
      pairs.push_back(there > back ? Pair{&w, o, there / back} : Pair{o, &w, back / there});
      logs.push_back(std::log(there / back));
    }
    if (pairs.size() < 2) return;
    const double middle = core::median(logs);
    for (double& l : logs) l -= middle;
    const double deviation = robust_deviation(std::move(logs), least_deviation);
    for (const Pair& p : pairs) {
      const double deviations = std::log(p.ratio) / deviation;
      const bool apart = p.slow->low / expected(*p.slow) > p.fast->high / expected(*p.fast);
      if (p.ratio < bounds_.window_ratio || deviations < bounds_.deviations || !apart) continue;
      if (is_slow_link(*p.slow)) continue;  // said there
      LinkFinding f{.what = What::asymmetry,
                    .deviations = deviations,
                    .ratio = p.ratio,
                    .from = p.slow->from,
                    .to = p.slow->to,
                    .name = name_of(*p.slow, ">")};
      f.text = fmt::format("{}: {}, the other way {}: {:.2f} times ({:.0f} robust deviations)", f.name,
                           figure(kind_, p.slow->seconds, bytes_), figure(kind_, p.fast->seconds, bytes_), p.ratio,
                           deviations);
      out.push_back(std::move(f));
    }
  }

  const Kind& kind_;
  const LinkBounds& bounds_;
  Robust all_;  ///< times [s]
  double bytes_ = 0;
  std::map<std::string, End> ends_;
};

}  // namespace

std::vector<LinkFinding> link_findings(std::span<const Point> points, const LinkBounds& bounds) {
  std::vector<LinkFinding> out;
  for (const Kind& kind : kinds_of(points)) Judge(kind, bounds).add_to(out);
  std::stable_sort(out.begin(), out.end(), [](const LinkFinding& a, const LinkFinding& b) {
    return std::pair(a.what != What::host, -a.deviations) < std::pair(b.what != What::host, -b.deviations);
  });
  return out;
}

std::vector<std::string> links_below(std::span<const Point> points, double share) {
  std::vector<std::string> out;
  for (const Kind& kind : kinds_of(points)) {
    const double usual = Judge(kind, {}).usual();
    for (const Way& w : kind.ways) {
      if (w.low * share <= usual) continue;
      out.push_back(fmt::format("{} (rank {}) > {} (rank {}): {} {:.2f} of the usual", w.from_host, w.from, w.to_host,
                                w.to, kind.latency ? "latency" : "bandwidth",
                                kind.latency ? w.seconds / usual : usual / w.seconds));
    }
  }
  return out;
}

}  // namespace gradmeter::analysis
