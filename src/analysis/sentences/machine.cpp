// SPDX-License-Identifier: Apache-2.0
// Findings about machines, launches, ranks, hosts and links: causes that spoil figures, and faults.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/links.hpp"
#include "analysis/sentences/sentences.hpp"
#include "core/format.hpp"
#include "core/result.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis::detail {
namespace {

using core::Factor;
using core::Metric;

/// Factors that do not decide which rank is slow or who shares cores: a step's batch, the exchange, and the ranks of a
/// link.
const Axes exchange_axes{
    Factor::batch_per_rank, Factor::batch_global, Factor::strategy,  Factor::algorithm, Factor::codec,
    Factor::transport,      Factor::bucket_bytes, Factor::overlap,   Factor::op,        Factor::size_bytes,
    Factor::in_place,       Factor::problem,      Factor::from_rank, Factor::to_rank,   Factor::pattern,
    Factor::tuned_table};

std::string counted_rows(std::size_t some, std::size_t all) {
  return fmt::format("{} of {} row{}", some, all, all == 1 ? "" : "s");
}

/// " over all batches and exchanges", if the rows differ in these; else empty.
std::string over_what(const Group& group) {
  const auto differ = [&](Factor f) {
    return std::ranges::any_of(group, [&](const MergedRow* r) { return r->text(f) != group.front()->text(f); });
  };
  std::vector<std::string> differing;
  if (differ(Factor::batch_per_rank)) differing.emplace_back("batches");
  if (differ(Factor::size_bytes)) differing.emplace_back("sizes");
  if (differ(Factor::problem)) differing.emplace_back("problems");
  if (differ(Factor::pattern)) differing.emplace_back("patterns");
  if (differ(Factor::from_rank) || differ(Factor::to_rank)) differing.emplace_back("links");
  if (differ(Factor::strategy) || differ(Factor::algorithm) || differ(Factor::codec) || differ(Factor::transport) ||
      differ(Factor::overlap) || differ(Factor::bucket_bytes))
    differing.emplace_back("exchanges");
  return differing.empty() ? "" : fmt::format(" over all {}", fmt::join(differing, " and "));
}

// --- launches

/// The times of a launch, relative to those of the other launches.
struct Launch {
  std::vector<double> log_ratios;  ///< logarithms of its times over the median of the other launches, for each point
  std::size_t outside = 0;         ///< number of points in which the launch lies far beyond the spread of the others
  std::size_t shared = 0;          ///< number of points in which it alone lost cores, and was the slowest
  double most_lost = 0;            ///< in those points, the largest share of the time without a core [0..1]
};

/// An outlier launch differs from the median of the others by more than `spreads_apart` times their range, which counts
/// as at least `least_spread`, and by more than `least_apart`.
constexpr double spreads_apart = 4, least_spread = 0.05, least_apart = 0.2231;  // as logarithms: 5 %, 25 %

/// Adds a point to what is known of each launch. `launches`: by the index of their run.
void add_point(std::map<std::size_t, Launch>& launches, const MergedRow& row, std::span<const core::Run> runs) {
  struct Timed {
    std::size_t run;
    double log_time, lost;  ///< lost: share of the time without a core; 0 where it is not noticeable, NaN where unknown
  };
  std::vector<Timed> launch_times;
  for (const auto& source : row.sources) {
    const core::Metrics& m = runs[source.run].points[source.point].metrics;
    const bool loses = core::waits_for_cores(m) || core::loses_cores(m);
    const double lost = loses ? std::max(core::run_delay(m), core::steal(m))
                        : std::isfinite(m.number(Metric::noise_run_delay)) ? 0
                                                                           : std::nan("");
    if (const double t = m.number(Metric::time_s); t > 0) launch_times.push_back({source.run, std::log(t), lost});
  }
  if (launch_times.size() < 3) return;
  for (const auto& [run, own, lost] : launch_times) {
    std::vector<double> others;
    bool others_keep_cores = true;  // all other launches kept their cores, and that is known
    for (const Timed& other : launch_times) {
      if (other.run == run) continue;
      others.push_back(other.log_time);
      others_keep_cores &= other.lost == 0;
    }
    if (others.size() < 2) continue;
    const auto [least, most] = std::ranges::minmax_element(others);
    const double spread = std::max(*most - *least, least_spread), apart = own - core::median(others);
    Launch& launch = launches[run];
    launch.log_ratios.push_back(apart);
    if (std::fabs(apart) > std::max(spreads_apart * spread, least_apart)) ++launch.outside;
    if (lost > 0 && others_keep_cores && own > *most && apart > least_spread) {
      ++launch.shared;
      launch.most_lost = std::max(launch.most_lost, lost);
    }
  }
}

// --- cores and ranks

void add_shared_cores(const MergedRows& rows, const Group& group, std::vector<Finding>& out) {
  std::size_t crowded = 0, contended = 0, waiting = 0;  // numbers of rows
  double most_delay = 0, most_steal = 0, contention = 0;
  for (const MergedRow* row : group) {
    if (row->is_true(Metric::oversubscribed)) ++crowded;
    if (row->text(Metric::bound_by) == "cores") {
      ++contended;
      contention = std::max(contention, row->number(Metric::contention_s) / row->number(Metric::time_s));
    }
    // Blocks in which the machine was merely faster or slower are no finding, but a caveat in sentences.
    if (!core::waits_for_cores(row->point.metrics) && !core::loses_cores(row->point.metrics)) continue;
    ++waiting;
    if (const double d = row->number(Metric::noise_run_delay); d > most_delay) most_delay = d;
    if (const double s = row->number(Metric::noise_steal); s > most_steal) most_steal = s;
  }
  const auto is_most = [&](std::size_t some) { return 2 * some >= group.size() && some > 0; };
  if (!is_most(crowded) && !is_most(contended) && !is_most(waiting)) return;
  const auto in_rows = [&](std::size_t some) { return counted_rows(some, group.size()) + over_what(group); };
  std::string sentence = is_most(crowded) ? fmt::format("more busy threads than cores in {}", in_rows(crowded))
                         : is_most(contended)
                             ? fmt::format("ranks share cores in {}", in_rows(contended))
                             : fmt::format("cores are shared in {}: {} had up to {} of the time", in_rows(waiting),
                                           most_steal > most_delay ? "the hypervisor" : "other threads",
                                           percent(std::max(most_delay, most_steal)));
  if (contention > 0)
    sentence += fmt::format("; ranks cost each other up to {} of a step without any exchange", percent(contention));
  Finding f = rows.finding(FindingKind::shared_cores, group, exchange_axes, "");
  f.sentence = as_sentence(fmt::format("{}: {}", rows.describe(group, exchange_axes).both(), sentence), true);
  f.figures["rows"].value = static_cast<double>(std::max({crowded, contended, waiting}));
  f.figures["rows_looked_at"].value = static_cast<double>(group.size());
  f.figures["run_delay"].value = most_delay;
  f.figures["steal"].value = most_steal;
  f.severity = is_most(crowded) ? 1 : std::max({contention, most_delay, most_steal});
  f.next = "gradmeter doctor";
  out.push_back(std::move(f));
}

/// The votes of launches that name a rank as the slowest.
struct SlowRank {
  std::size_t launches = 0;
  std::string host;
  std::vector<double> shares, spreads;  ///< of the step that others wait for; time over that of the fastest rank
};

std::map<std::int64_t, SlowRank> slow_ranks(const MergedRows& rows, const Group& group) {
  constexpr double least_share = 0.05, least_rank_spread = 1.1;
  std::map<std::int64_t, SlowRank> out;
  for (const MergedRow* row : group) {
    for (const auto& source : row->sources) {
      const core::Metrics& m = rows.runs()[source.run].points[source.point].metrics;
      const auto* rank = m[Metric::slowest_rank].as<std::int64_t>();
      const double share = m.number(Metric::straggle_s) / m.number(Metric::time_s);
      const double spread = m.number(Metric::ranks_spread);
      // A busy or slow machine may have met one rank alone: such a difference does not make the rank slow.
      const double explained = core::share_of_disturbance(m);
      const bool stands_out = share >= std::max(least_share, explained) || spread >= least_rank_spread + explained;
      if (!rank || !stands_out) continue;
      SlowRank& slow = out[*rank];
      ++slow.launches;
      slow.host = core::is_null(m[Metric::slowest_host]) ? "" : core::to_text(m[Metric::slowest_host]);
      if (std::isfinite(share)) slow.shares.push_back(share);
      if (std::isfinite(spread)) slow.spreads.push_back(spread);
    }
  }
  return out;
}

void add_slow_ranks(const MergedRows& rows, const Group& group, std::vector<Finding>& out) {
  constexpr double needed_share = 2.0 / 3;
  std::size_t launches = 0;
  for (const MergedRow* row : group) launches += row->sources.size();
  for (const auto& [rank, slow] : slow_ranks(rows, group)) {
    if (static_cast<double>(slow.launches) < needed_share * static_cast<double>(launches)) continue;
    std::string costs;
    double severity = 0;
    if (!slow.shares.empty()) {
      severity = core::median(slow.shares);
      costs = fmt::format(": it computes longer than the others by {} of the step", percent(severity));
    } else if (!slow.spreads.empty()) {
      severity = 1 - 1 / core::median(slow.spreads);
      costs = fmt::format(": it takes {:.2f} times as long as the fastest", core::median(slow.spreads));
    }
    Finding f =
        rows.finding(FindingKind::slow_rank, group, exchange_axes,
                     fmt::format("{}: rank {}{} is the slow one in {}{}{}", rows.describe(group, exchange_axes).both(),
                                 rank, slow.host.empty() ? "" : " on " + slow.host,
                                 counted_rows(slow.launches, launches), over_what(group), costs));
    f.figures["rank"].value = static_cast<double>(rank);
    f.figures["share_of_step"].value = slow.shares.empty() ? std::nan("") : core::median(slow.shares);
    f.severity = severity;
    f.next = "gradmeter links --pattern groups";
    out.push_back(std::move(f));
  }
}

// --- soaks

/// Adds what disturbed one soak, which has the rows `sources` of the group. `launch`: names it among several.
void add_disturbances(const MergedRows& rows, const Group& group, const std::vector<SourceRow>& sources,
                      const std::string& launch, std::vector<Finding>& out) {
  const Axes over{Factor::from_rank, Factor::interval};
  std::vector<core::Point> points;
  for (const SourceRow& source : sources) points.push_back(rows.runs()[source.run].points[source.point]);
  const auto found = soak_findings(points);
  if (found.disturbances.empty() && found.drifts.empty() && found.outliers.empty()) return;
  const auto texts = soak_sentences(found);
  constexpr std::size_t most_shown = 3;
  const std::vector<std::string> shown(texts.begin(),
                                       texts.begin() + static_cast<std::ptrdiff_t>(std::min(most_shown, texts.size())));
  std::string text = fmt::format("{}", fmt::join(shown, "; "));
  if (texts.size() > most_shown) text += fmt::format("; and {} more", texts.size() - most_shown);
  Finding f = rows.finding(
      FindingKind::disturbance, group, over,
      fmt::format("in {}a soak of {:.0f} s{}: {}", launch, found.seconds, rows.describe(group, over).rest, text));
  f.rows = sources;
  f.figures["disturbances"].value = static_cast<double>(found.disturbances.size());
  f.figures["drifts"].value = static_cast<double>(found.drifts.size());
  f.figures["outliers"].value = static_cast<double>(found.outliers.size());
  for (const auto& d : found.disturbances) f.severity = std::max(f.severity, 1 - 1 / d.ratio);
  out.push_back(std::move(f));
}

// --- links

void add_links(const MergedRows& rows, const Group& group, const Axes& over, std::vector<Finding>& out) {
  std::vector<core::Point> points;
  for (const MergedRow* row : group) points.push_back(row->point);
  for (const auto& found : link_findings(points)) {
    const auto kind = found.is_host() ? FindingKind::slow_host : FindingKind::slow_link;
    auto described = rows.describe(group, over);
    Finding f = rows.finding(kind, group, over, fmt::format("{}{}", found.text, described.rest));
    f.figures["ratio"].value = found.ratio;
    f.figures["deviations"].value = found.deviations;
    f.figures["from_rank"].value = found.from;
    if (found.to >= 0) f.figures["to_rank"].value = found.to;
    f.severity = 1 - 1 / std::max(found.ratio_to_expected, 1.0);
    out.push_back(std::move(f));
  }
}

}  // namespace

void find_mixed_machines(const MergedRows& rows, std::vector<Finding>& out) {
  if (rows.origins() < 2) return;
  for (const auto& experiment : rows.experiments()) {
    Group group;
    std::set<std::size_t> origins;
    for (const MergedRow& row : rows.all()) {
      if (row.point.experiment != experiment || !row.is_ok()) continue;
      group.push_back(&row);
      origins.insert(row.origin);
    }
    if (origins.size() < 2) continue;
    std::vector<std::string> labels;
    for (const auto origin : origins) labels.push_back(rows.origin_label(origin));
    Finding f{.kind = FindingKind::mixed_machines, .experiment = experiment};
    for (const MergedRow* row : group) f.rows.insert(f.rows.end(), row->sources.begin(), row->sources.end());
    f.figures["origins"].value = static_cast<double>(origins.size());
    f.severity = 1;
    f.sentence = fmt::format(
        "The rows of {} come from {} machines, builds or conditions, and nothing is merged across them: {}.",
        experiment, origins.size(), fmt::join(labels, "; "));
    f.next = "gradmeter compare FIRST.jsonl SECOND.jsonl";
    out.push_back(std::move(f));
  }
}

void find_outlier_launches(const MergedRows& rows, std::vector<Finding>& out) {
  for (const auto& experiment : rows.experiments()) {
    std::map<std::size_t, Group> groups;  // by origin
    for (const MergedRow& row : rows.all())
      if (row.is_ok() && row.point.experiment == experiment && row.sources.size() >= 3)
        groups[row.origin].push_back(&row);
    for (const auto& [origin, group] : groups) {
      std::map<std::size_t, Launch> launches;
      for (const MergedRow* row : group) add_point(launches, *row, rows.runs());
      for (const auto& [run, launch] : launches) {
        const bool is_shared = 2 * launch.shared > launch.log_ratios.size();
        if (!is_shared && 2 * launch.outside <= launch.log_ratios.size()) continue;
        const double time_ratio = std::exp(core::median(launch.log_ratios));
        const core::RunInfo& info = rows.runs()[run].info;
        Finding f{.kind = FindingKind::outlier_launch, .experiment = experiment};
        for (const MergedRow* row : group) f.rows.insert(f.rows.end(), row->sources.begin(), row->sources.end());
        f.figures["time_ratio"].value = time_ratio;
        f.figures["launch"].value = static_cast<double>(run + 1);
        f.figures["launches"].value = static_cast<double>(launches.size());
        f.severity = std::fabs(std::log(time_ratio));
        f.sentence = fmt::format(
            "One launch of {}, number {} of {}{}, took {:.2f} times as long as the others in the middle of {} point{}, "
            "{}: look at what ran then, and repeat it.",
            experiment, run + 1, rows.runs().size(), info.time.empty() ? "" : " at " + info.time, time_ratio,
            launch.log_ratios.size(), launch.log_ratios.size() == 1 ? "" : "s",
            is_shared
                ? fmt::format("and it alone was without cores for up to {:.0f} % of the time", 100 * launch.most_lost)
                : "far beyond their spread");
        f.next = info.command;
        out.push_back(std::move(f));
      }
    }
  }
}

void find_shared_cores(const MergedRows& rows, std::vector<Finding>& out) {
  for (const auto& experiment : rows.experiments())
    for (const Group& group : rows.groups(experiment, exchange_axes, [](const MergedRow&) { return true; }))
      add_shared_cores(rows, group, out);
}

void find_slow_ranks(const MergedRows& rows, std::vector<Finding>& out) {
  const auto has_ranks = [](const MergedRow& r) { return r.whole(Factor::ranks) > 1; };
  for (const auto& experiment : rows.experiments())
    for (const Group& group : rows.groups(experiment, exchange_axes, has_ranks)) add_slow_ranks(rows, group, out);
}

void find_slow_links(const MergedRows& rows, std::vector<Finding>& out) {
  const Axes over{Factor::from_rank, Factor::to_rank};
  for (const Group& group :
       rows.groups("links", over, [](const MergedRow& r) { return r.text(Factor::pattern) == "one-way"; }))
    add_links(rows, group, over, out);
  const auto searched = [](const MergedRow& r) { return r.text(Factor::pattern) == "groups"; };
  for (const Group& group : rows.groups("links", {}, searched)) {
    for (const MergedRow* row : group) {
      const std::string ranks = row->text(Metric::slow_ranks);
      if (ranks.empty()) continue;
      const auto described = rows.describe(group, {});
      Finding f = rows.finding(
          FindingKind::slow_rank, group, {},
          fmt::format("{}: slow are the ranks {} ({})", described.both(), ranks, row->text(Metric::slow_hosts)));
      f.severity = 0.5;
      f.next = "gradmeter links";
      out.push_back(std::move(f));
    }
  }
}

void find_disturbances(const MergedRows& rows, std::vector<Finding>& out) {
  const Axes over{Factor::from_rank, Factor::interval};
  for (const Group& group : rows.groups("soak", over, [](const MergedRow&) { return true; })) {
    // Each launch is judged by itself: what disturbs one of them happens in no other at the same time.
    std::map<std::size_t, std::vector<SourceRow>> soaks;  // by run
    for (const MergedRow* row : group)
      for (const SourceRow& source : row->sources) soaks[source.run].push_back(source);
    std::size_t number = 0;
    for (auto& [run, sources] : soaks) {
      ++number;
      std::ranges::sort(sources);
      const std::string launch = soaks.size() == 1 ? "" : fmt::format("launch {} of {} of ", number, soaks.size());
      add_disturbances(rows, group, sources, launch, out);
    }
  }
}

void find_gaps(const MergedRows& rows, std::vector<Finding>& out) {
  for (const auto& experiment : rows.experiments()) {
    std::size_t points = 0;
    Finding doubtful{.kind = FindingKind::not_trusted, .experiment = experiment},
        unjudged{.kind = FindingKind::not_trusted, .experiment = experiment},
        gaps{.kind = FindingKind::no_figure, .experiment = experiment};
    for (const MergedRow& row : rows.all()) {
      if (row.point.experiment != experiment) continue;
      ++points;
      const auto add = [&](Finding& to, const std::string& why) {
        to.figures.try_emplace(why, Estimate{.value = 0}).first->second.value += 1;
        to.rows.insert(to.rows.end(), row.sources.begin(), row.sources.end());
      };
      if (row.point.status == core::Status::mistrusted) {
        add(doubtful, "mistrusted");
      } else if (!row.is_ok()) {
        add(gaps, std::string(core::name(row.point.status)));
      } else if (is_implausible(row)) {
        add(doubtful, "efficiency above 100 % beyond its interval");
      } else if (row.whole(Factor::ranks) > 1 && std::isfinite(row.number(Metric::efficiency)) &&
                 !has_efficiency(row)) {
        add(unjudged, "without an interval");  // its time and the rest of the row can be trusted
      }
    }
    const auto tell = [&](Finding& f, std::string_view words) {
      if (f.figures.empty()) return;
      std::string text;
      for (const auto& [why, count] : f.figures)
        text += fmt::format("{}{:.0f} {}", text.empty() ? "" : ", ", count.value, why);
      f.sentence = fmt::format("Of {} point{} of {} {}: {}.", points, points == 1 ? "" : "s", experiment, words, text);
      out.push_back(std::move(f));
    };
    tell(doubtful, "nothing is concluded from these");
    tell(unjudged, "nothing is concluded from the efficiency of these");
    tell(gaps, "these have no figure");
  }
}

}  // namespace gradmeter::analysis::detail
