// SPDX-License-Identifier: Apache-2.0
#include "analysis/launches.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <unordered_map>

#include "analysis/comparison.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/print.hpp"

namespace gradmeter::analysis {
namespace {

bool chosen(const core::Point& point, const PointSelection& selection) {
  return std::ranges::all_of(
      selection.only, [&](const auto& wanted) { return core::to_text(point.factors[wanted.first]) == wanted.second; });
}

std::string key_of(const core::Point& point) {
  return fmt::format("{} {}", core::escaped_key_part(point.experiment), point.factors.key());
}

core::Point without(core::Point point, std::span<const core::Factor> ignored) {
  for (const auto f : ignored) point.factors[f] = {};
  return point;
}

/// Refuses points of one launch that would become one because a factor is ignored.
void require_equal(const core::Run& run, const core::Point& a, const core::Point& b,
                   std::span<const core::Factor> ignored) {
  for (const core::Factor f : ignored) {
    const std::set<std::string> values{core::to_text(a.factors[f]), core::to_text(b.factors[f])};
    if (values.size() < 2) continue;
    throw core::UsageError(fmt::format(
        "launch {} has points of {} that differ only in {} ({}), and --ignore {} would drop all but one; choose by "
        "--where {}={}",
        run.info.run_id, a.experiment, core::name(f), fmt::join(values, " and "), core::name(f), core::name(f),
        *values.begin()));
  }
}

/// The selected points of a run; of points with the same factors only the last.
std::vector<core::Point> points_of(const core::Run& run, const PointSelection& selection) {
  std::map<std::string, std::size_t> places;
  std::vector<core::Point> out;
  std::vector<const core::Point*> originals;
  for (const core::Point& point : run.points) {
    if (!chosen(point, selection)) continue;
    core::Point kept = without(point, selection.ignored);
    const auto [place, is_new] = places.emplace(key_of(kept), out.size());
    if (is_new) {
      out.push_back(std::move(kept));
      originals.push_back(&point);
    } else {
      require_equal(run, *originals[place->second], point, selection.ignored);
      out[place->second] = std::move(kept);
    }
  }
  return out;
}

void add_launch(LaunchedPoint& to, core::Point point, core::Metric metric) {
  ++to.launches;
  const double value = point.metrics.number(metric);
  std::string why;
  if (point.status != core::Status::ok) {
    why = fmt::format("{}: {}", core::name(point.status), point.reason);
  } else if (!std::isfinite(value)) {
    why = fmt::format("no {}", core::name(metric));
  } else if (value <= 0) {
    ++to.not_positive;
    why = fmt::format("no positive {}", core::name(metric));
  } else {
    to.values.push_back(value);
  }
  if (to.reason.empty()) to.reason = std::move(why);
  const bool* oversubscribed = point.metrics[core::Metric::oversubscribed].as<bool>();
  to.oversubscribed = to.oversubscribed || (oversubscribed && *oversubscribed);
  to.disturbed = to.disturbed || core::is_disturbed(point.metrics);
  to.last_point = std::move(point);
}

template <class Key>
Key find_key(std::string_view what, std::span<const core::KeyInfo> table, const std::string& name) {
  std::vector<std::string> keys;
  for (const auto& row : table) keys.emplace_back(row.key);
  const auto found = std::ranges::find(keys, name);
  if (found != keys.end()) return static_cast<Key>(found - keys.begin());
  const std::string near = core::nearest(name, keys);
  throw core::UsageError(fmt::format("{} '{}' is not known{}; see gradmeter list {}s", what, name,
                                     near.empty() ? "" : fmt::format(" (did you mean {}?)", near), what));
}

}  // namespace

LaunchedPoints::LaunchedPoints(std::span<const core::Run> runs, const PointSelection& selection) {
  const std::vector<std::size_t> origins = origins_of(runs);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (core::Point& point : points_of(runs[r], selection)) {
      const std::string key = key_of(point);
      const auto [place, is_new] = points_.try_emplace(key);
      if (is_new) keys_.push_back(key);
      add_launch(place->second, std::move(point), selection.metric);
      place->second.origins.insert(origins[r]);
    }
  }
}

const LaunchedPoint* LaunchedPoints::find(const std::string& key) const {
  const auto place = points_.find(key);
  return place == points_.end() ? nullptr : &place->second;
}

std::vector<Side> sides_by(core::Factor factor, std::span<const core::Run> runs, const std::string& baseline) {
  std::vector<Side> out;
  const auto side_of = [&](const std::string& name) -> Side& {
    const auto found = std::ranges::find_if(out, [&](const Side& s) { return s.name == name; });
    if (found != out.end()) return *found;
    return out.emplace_back(Side{.name = name, .runs = {}});
  };
  for (const core::Run& run : runs) {
    for (const core::Point& point : run.points) {
      if (core::is_null(point.factors[factor])) continue;
      Side& side = side_of(core::to_text(point.factors[factor]));
      if (side.runs.empty() || side.runs.back().info.run_id != run.info.run_id) side.runs.push_back({run.info, {}});
      side.runs.back().points.push_back(point);
    }
  }
  std::vector<std::string> names;
  for (const Side& side : out) names.push_back(side.name);
  if (!baseline.empty()) {
    const auto found = std::ranges::find(names, baseline);
    if (found == names.end()) core::refuse_unknown(core::name(factor), baseline, names);
    std::rotate(out.begin(), out.begin() + (found - names.begin()), out.begin() + (found - names.begin()) + 1);
  }
  if (out.size() < 2) {
    throw core::UsageError(fmt::format("the points have {} of {}: nothing to compare; name files with several",
                                       out.empty() ? "no value" : "one value", core::name(factor)));
  }
  return out;
}

void require_each_launch_once(std::span<const Side> sides) {
  std::set<std::string> seen;
  for (const Side& side : sides) {
    for (const core::Run& run : side.runs) {
      if (seen.insert(run.info.run_id).second) continue;
      throw core::UsageError(
          fmt::format("{}: its launch {} is named twice; name each launch once", side.name, run.info.run_id));
    }
  }
}

void refuse_predicted(const Side& side) {
  for (const core::Run& run : side.runs)
    for (const core::Point& point : run.points)
      if (!point.metrics[core::Metric::predicted].is_null())
        throw core::UsageError(
            fmt::format("{} has predicted points, and only measurements are compared; name files without them, or draw "
                        "both with gradmeter report",
                        side.name));
}

int better_direction(core::Metric metric) {
  const core::KeyInfo& row = core::metric_table()[static_cast<std::size_t>(metric)];
  static const std::set<core::Metric> times_without{core::Metric::overlap_s, core::Metric::elapsed_s,
                                                    core::Metric::learn_time_s, core::Metric::timeline_step_s,
                                                    core::Metric::published_time_s};
  if (row.unit == "s" && !times_without.contains(metric)) return -1;
  if (row.unit.ends_with("/s")) return 1;
  static const std::set<core::Metric> shares{core::Metric::efficiency,   core::Metric::efficiency_node,
                                             core::Metric::self_speedup, core::Metric::speedup,
                                             core::Metric::accuracy,     core::Metric::roofline};
  static const std::set<core::Metric> losses{core::Metric::loss, core::Metric::validation_loss, core::Metric::error};
  if (shares.contains(metric)) return 1;
  if (losses.contains(metric)) return -1;
  throw core::UsageError(
      fmt::format("metric {} has no better direction; compare a time, a rate, a share or a loss", core::name(metric)));
}

core::Metric find_metric(const std::string& name) {
  return find_key<core::Metric>("metric", core::metric_table(), name);
}
core::Factor find_factor(const std::string& name) {
  return find_key<core::Factor>("factor", core::factor_table(), name);
}

namespace {

/// The values of each condition over the launches of a side.
using Conditions = std::map<std::string, std::set<std::string>>;

Conditions conditions_of(const Side& side) {
  std::vector<std::map<std::string, std::string>> launches;
  for (const auto& run : side.runs) {
    const core::RunInfo& info = run.info;
    std::map<std::string, std::string> own{{"version", fmt::format("{} ({})", info.version, info.commit)},
                                           {"hosts", fmt::format("{}", fmt::join(info.hosts, ","))},
                                           {"processor", info.cpu},
                                           {"MPI", info.mpi},
                                           {"MPI's single copy", info.mpi_copy_mechanism},
                                           {"binding", info.binding},
                                           {"GPUs", fmt::format("{}", fmt::join(info.gpus, ", "))}};
    for (const auto& [name, version] : info.libraries) own["library " + name] = version;
    for (const auto& [name, value] : info.environment) own["environment " + name] = value;
    launches.push_back(std::move(own));
  }
  Conditions out;
  for (const auto& own : launches)
    for (const auto& [name, value] : own) out[name].insert(value);
  for (auto& [name, values] : out)
    if (std::ranges::any_of(launches, [&name = name](const auto& own) { return !own.contains(name); }))
      values.insert("none");
  return out;
}

std::string shown(const Conditions& of, const std::string& name) {
  const auto found = of.find(name);
  return found == of.end() ? "none" : fmt::format("{}", fmt::join(found->second, " and "));
}

std::pair<std::string, std::string> first_and_last(const Side& side) {
  const auto by_time = [](const core::Run& x, const core::Run& y) { return x.info.time < y.info.time; };
  const auto [first, last] = std::ranges::minmax_element(side.runs, by_time);
  return {first->info.time, last->info.time};
}

}  // namespace

std::vector<std::string> differing_conditions(const Side& a, const Side& b) {
  const Conditions of_a = conditions_of(a), of_b = conditions_of(b);
  std::set<std::string> names;
  for (const auto& [name, values] : of_a) names.insert(name);
  for (const auto& [name, values] : of_b) names.insert(name);
  std::vector<std::string> out;
  for (const auto& name : names) {
    const std::string before = shown(of_a, name), after = shown(of_b, name);
    if (before != after) out.push_back(fmt::format("{}: {} to {}", name, before, after));
  }
  return out;
}

bool launched_in_two_blocks(const Side& a, const Side& b) {
  if (a.runs.size() < 2 || b.runs.size() < 2) return false;
  const auto [a_first, a_last] = first_and_last(a);
  const auto [b_first, b_last] = first_and_last(b);
  return a_last < b_first || b_last < a_first;
}

std::string machine_of(const core::RunInfo& info) {
  std::string out = core::escaped_key_part(info.cpu);
  for (const auto& host : info.hosts) out += " " + core::escaped_key_part(host);
  for (const auto& gpu : info.gpus) out += "|" + core::escaped_key_part(gpu);
  return out;
}

std::string with_ranks_of(const core::RunInfo& info, const std::string& command) {
  constexpr std::string_view threads = " --thread-ranks";
  const bool measures = command.starts_with("gradmeter ") && !command.starts_with("gradmeter compare ");
  if (!measures || info.ranks < 2 || command.find(threads) != std::string::npos) return command;
  return info.command.find(threads) != std::string::npos ? fmt::format("{}{} {}", command, threads, info.ranks)
                                                         : fmt::format("mpirun -np {} {}", info.ranks, command);
}

std::string repeat_command(const core::RunInfo& info, std::int64_t launches) {
  const auto has = [&](std::string_view flag) { return info.command.find(flag) != std::string::npos; };
  if (!info.command.starts_with("gradmeter ") || has(" --force") || has(" --resume")) return "";
  return fmt::format("scripts/launches.sh {} -- {}", launches, with_ranks_of(info, info.command));
}

std::string origin_of(const core::RunInfo& info) {
  std::string out = fmt::format("{}|{}|{}", core::escaped_key_part(info.fingerprint),
                                core::escaped_key_part(info.version), core::escaped_key_part(info.commit));
  for (const auto& [name, version] : info.libraries)
    out += fmt::format("|{} {}", core::escaped_key_part(name), core::escaped_key_part(version));
  return out;
}

namespace {

/// The names of the conditions in which runs of one build differ that have as many ranks on as many nodes. The number
/// of ranks decides conditions too (where ranks are bound, SLURM_NTASKS), and it is a factor of every point.
std::set<std::string> differing_names(std::span<const core::Run* const> runs,
                                      std::span<const core::Conditions> conditions) {
  std::map<std::string, std::size_t> firsts;  // by build and ranks: the first run of this kind
  std::set<std::string> out;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const core::RunInfo& info = runs[r]->info;
    const std::string alike =
        fmt::format("{}|{}|{}", origin_of(info), info.ranks, core::escaped_key_part(info.mapping));
    const std::size_t first = firsts.try_emplace(alike, r).first->second;
    for (const auto& [of, other] : {std::pair{r, first}, {first, r}}) {
      for (const auto& [name, value] : conditions[of]) {
        const auto found = conditions[other].find(name);
        if (found == conditions[other].end() || found->second != value) out.insert(name);
      }
    }
  }
  return out;
}

}  // namespace

std::vector<std::size_t> origins_of(std::span<const core::Run* const> runs) {
  std::vector<core::Conditions> conditions;
  conditions.reserve(runs.size());
  for (const core::Run* run : runs) conditions.push_back(core::conditions_of(run->info));
  const std::set<std::string> names = differing_names(runs, conditions);
  std::map<std::string, std::size_t> numbers;
  std::vector<std::size_t> out;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    std::string origin = origin_of(runs[r]->info);
    for (const std::string& name : names) {
      const auto found = conditions[r].find(name);
      origin += found == conditions[r].end() ? "|" : fmt::format("|{}", core::escaped_key_part("=" + found->second));
    }
    out.push_back(numbers.try_emplace(origin, numbers.size()).first->second);
  }
  return out;
}

std::vector<std::size_t> origins_of(std::span<const core::Run> runs) {
  std::vector<const core::Run*> pointers;
  for (const core::Run& run : runs) pointers.push_back(&run);
  return origins_of(pointers);
}

namespace {

using core::Metric;
using core::Point;
using Launches = std::vector<const Point*>;

constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

std::string identity(std::size_t origin, const Point& p) {
  return fmt::format("{}|{}|{}|{}|{}|{}", origin, core::escaped_key_part(p.experiment), core::name(p.status),
                     p.factors.key(), core::to_text(p.metrics[Metric::step]), core::to_text(p.metrics[Metric::epoch]));
}

/// A number in each of the launches that have it.
template <class Value>
std::vector<double> numbers_of(const Launches& launches, const Value& value) {
  std::vector<double> values;
  for (const Point* p : launches)
    if (const double v = value(*p); std::isfinite(v)) values.push_back(v);
  return values;
}

double median_of(const std::vector<double>& values) { return values.empty() ? not_measured : core::median(values); }

/// The number of which `launch_interval` is the interval; the median if a value is not positive.
double centre_of(const std::vector<double>& values) {
  const bool positive = !values.empty() && std::ranges::all_of(values, [](double v) { return v > 0; });
  return positive ? geometric_mean(values) : median_of(values);
}

/// True for a number that may be below zero, and so has no logarithm.
bool may_be_negative(Metric metric) { return metric == Metric::exposed_s || metric == Metric::accuracy_lost; }

/// The interval of a number over launches. `low`, `high`: the ends of a launch's own interval.
template <class Low, class High>
Estimate interval_of(const Launches& launches, Metric metric, const Low& low, const High& high) {
  std::vector<double> values;
  for (const Point* p : launches) values.push_back(p->metrics.number(metric));
  // The spread of numbers that agree in all digits is not known: they were rounded, or one launch decided them.
  const bool agree = std::ranges::adjacent_find(values, std::not_equal_to()) == values.end();
  if (agree || may_be_negative(metric)) {
    const std::vector<double> lows = numbers_of(launches, low), highs = numbers_of(launches, high);
    if (lows.size() < launches.size() || highs.size() < launches.size()) return {};
    return {.low = std::ranges::min(lows), .high = std::ranges::max(highs)};
  }
  const bool positive = std::ranges::all_of(values, [](double v) { return v > 0 && std::isfinite(v); });
  return positive ? launch_interval(values) : Estimate{};
}

core::Summary merge_summaries(const Launches& launches, Metric metric) {
  const auto summary_of = [metric](const Point& p) { return p.metrics[metric].as<core::Summary>(); };
  core::Summary out;
  for (const auto& [key, statistic] : core::statistics) {
    out.*statistic = centre_of(
        numbers_of(launches, [&](const Point& p) { return summary_of(p) ? summary_of(p)->*statistic : not_measured; }));
  }
  for (const Point* p : launches) out.n += summary_of(*p) ? summary_of(*p)->n : 0;
  const auto end_of = [&](double core::Summary::*end) {
    return [&summary_of, end](const Point& p) { return summary_of(p) ? summary_of(p)->*end : not_measured; };
  };
  const auto interval =
      interval_of(launches, metric, end_of(&core::Summary::ci95_low), end_of(&core::Summary::ci95_high));
  out.ci95_low = interval.low;
  out.ci95_high = interval.high;
  return out;
}

/// Metrics that are the interval of another metric, such as efficiency_ci95_low and efficiency_ci95_high.
struct IntervalMetrics {
  Metric of, low, high;
};
/// The metrics of intervals, found by either end. The name of the metric that has the interval stands before the
/// ending, with or without its unit ("_s").
using IntervalEnds = std::map<Metric, IntervalMetrics>;
const IntervalEnds& interval_ends() {
  static const IntervalEnds ends = [] {
    std::map<std::string, Metric, std::less<>> metrics;
    for (std::size_t i = 0; i < core::metric_count; ++i)
      metrics.emplace(core::name(static_cast<Metric>(i)), static_cast<Metric>(i));
    IntervalEnds out;
    constexpr std::string_view ending = "_ci95_low";
    for (const auto& [name, low] : metrics) {
      if (!name.ends_with(ending)) continue;
      const std::string base = name.substr(0, name.size() - ending.size());
      const Metric high = metrics.at(base + "_ci95_high");
      for (const std::string& of : {base + "_s", base})
        if (const auto found = metrics.find(of); found != metrics.end())
          out[low] = out[high] = {.of = found->second, .low = low, .high = high};
    }
    return out;
  }();
  return ends;
}

/// True for times, rates and ratios of times: their geometric means agree with each other.
bool has_geometric_mean(Metric metric) {
  static const std::set<Metric> ratios{Metric::efficiency, Metric::efficiency_node, Metric::self_speedup,
                                       Metric::speedup, Metric::roofline};
  const std::string_view unit = core::metric_table()[static_cast<std::size_t>(metric)].unit;
  return !may_be_negative(metric) && (unit == "s" || unit.ends_with("/s") || ratios.contains(metric));
}

core::Value merge_metric(const Launches& launches, Metric metric) {
  const core::Value& last = launches.back()->metrics[metric];
  if (last.as<core::Summary>()) return merge_summaries(launches, metric);
  if (last.as<bool>()) {
    return std::ranges::any_of(launches, [metric](const Point* p) {
      const auto* truth = p->metrics[metric].as<bool>();
      return truth && *truth;
    });
  }
  // A timeline covers one step: it is that of the last launch.
  if (!last.as<double>() || metric == Metric::timeline_step_s) return last;
  if (const auto found = interval_ends().find(metric); found != interval_ends().end()) {
    const IntervalMetrics& ends = found->second;
    const auto end_of = [](Metric end) { return [end](const Point& p) { return p.metrics.number(end); }; };
    const Estimate interval = interval_of(launches, ends.of, end_of(ends.low), end_of(ends.high));
    return metric == ends.low ? interval.low : interval.high;
  }
  const auto values = numbers_of(launches, [metric](const Point& p) { return p.metrics.number(metric); });
  return has_geometric_mean(metric) ? centre_of(values) : median_of(values);
}

/// The launches that learned from as many samples as the last, by the same rule: the accuracies of others are of
/// another training.
Launches learned_alike(const Launches& launches) {
  Launches out;
  const auto same = [&](const Point* p, Metric m) { return p->metrics[m] == launches.back()->metrics[m]; };
  std::ranges::copy_if(launches, std::back_inserter(out),
                       [&](const Point* p) { return same(p, Metric::learn_samples) && same(p, Metric::learn_rule); });
  return out;
}

/// The share of each cause in a text such as "wire 93 %, straggle 7 %"; empty if the text is of another form.
std::map<std::string, double> shares_of(const std::string& candidates) {
  std::map<std::string, double> out;
  std::istringstream words(candidates);
  std::string cause, sign;
  for (double percent = 0; words >> cause >> percent >> sign;) out[cause] = percent / 100;
  return out;
}

/// Merges the verdicts of all launches: each launch votes by the shares of its candidates. If a launch has no shares,
/// as baselines have none, the verdict is that of all launches if they agree, else "undecided".
void merge_verdicts(const Launches& launches, Point& out) {
  constexpr double decided = 2.0 / 3;
  std::map<std::string, double> votes;
  bool all_have_shares = true, all_agree = true;
  std::size_t nothing_lost = 0;  // launches whose verdict is that nothing is lost
  for (const Point* p : launches) {
    const auto text = [p](Metric m) { return core::is_null(p->metrics[m]) ? "" : core::to_text(p->metrics[m]); };
    const auto shares = shares_of(text(Metric::bound_by_candidates));
    all_have_shares = all_have_shares && !shares.empty();
    all_agree = all_agree && text(Metric::bound_by) == core::to_text(out.metrics[Metric::bound_by]);
    nothing_lost += text(Metric::bound_by) == "compute";
    for (const auto& [cause, share] : shares) votes[cause] += share / static_cast<double>(launches.size());
  }
  if (!all_have_shares) {
    if (all_agree) return;
    out.metrics[Metric::bound_by] = "undecided";
    out.metrics[Metric::bound_by_probability] = {};
    return;
  }
  std::vector<std::pair<std::string, double>> candidates(votes.begin(), votes.end());
  std::ranges::stable_sort(candidates, [](auto& a, auto& b) { return a.second > b.second; });
  // A launch stays undecided about a loss that only the machine's state may explain, however likely "compute" is. So
  // "compute" also needs the verdicts of two thirds of the launches.
  const bool too_few_agree = candidates.front().first == "compute" && 3 * nothing_lost < 2 * launches.size();
  const bool is_undecided = candidates.front().second < decided || too_few_agree;
  out.metrics[Metric::bound_by] = is_undecided ? "undecided" : candidates.front().first;
  out.metrics[Metric::bound_by_probability] = candidates.front().second;
  std::string text;
  for (const auto& [cause, share] : candidates)
    if (share >= 0.005) text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", cause, 100 * share);
  out.metrics[Metric::bound_by_candidates] = text;
}

/// Keeps the slowest rank that two thirds of the launches name; else there is none.
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
  static const std::set<Metric> learned{Metric::accuracy_at_samples, Metric::accuracy_at_time, Metric::learn_time_s};
  const Launches alike = learned_alike(launches);
  launches.back()->metrics.each(
      [&](Metric m, const core::Value&) { out.metrics[m] = merge_metric(learned.contains(m) ? alike : launches, m); });
  if (!core::is_null(out.metrics[Metric::bound_by])) merge_verdicts(launches, out);
  merge_slowest(launches, out);
  return out;
}

}  // namespace

std::vector<MergedPoint> merge_launches(std::span<const core::Run* const> runs) {
  std::unordered_map<std::string, std::size_t> places;
  std::vector<std::vector<SourceRow>> sources;
  const std::vector<std::size_t> origins = origins_of(runs);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (std::size_t p = 0; p < runs[r]->points.size(); ++p) {
      const auto [place, is_new] = places.try_emplace(identity(origins[r], runs[r]->points[p]), sources.size());
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
  std::vector<const core::Run*> pointers;
  for (const core::Run& run : runs) pointers.push_back(&run);
  return merge_launches(pointers);
}

namespace {

namespace fs = std::filesystem;

void check(const std::error_code& error, const char* call, const fs::path& path) {
  if (error) throw core::BackendError("file system", call, fmt::format("'{}': {}", path.string(), error.message()));
}

/// The name of an archived file. `number` tells files apart that begin with the same run. Times and ids of gradmeter
/// have no other characters than these; those of a foreign file must not lead out of the directory.
std::string file_name(const core::RunInfo& run, int number) {
  std::string name = fmt::format("{}-{}", run.time, run.run_id);
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '.'; }, '_');
  return number > 1 ? fmt::format("{}-{}.jsonl", name, number) : name + ".jsonl";
}

/// True if each of the runs is among the others, with all of its points.
bool are_among(std::span<const core::Run> runs, std::span<const core::Run> others) {
  std::map<std::string, std::size_t> points;
  for (const core::Run& run : others) points[run.info.run_id] = run.points.size();
  return std::ranges::all_of(runs, [&](const core::Run& run) {
    const auto found = points.find(run.info.run_id);
    return found != points.end() && run.points.size() <= found->second;
  });
}

}  // namespace

std::vector<fs::path> result_files(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> out;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".jsonl") out.push_back(entry->path());
  if (error)
    throw core::UsageError(fmt::format("cannot read the directory '{}': {}", directory.string(), error.message()));
  std::ranges::sort(out);
  return out;
}

History history_of(const Side& result, const fs::path& directory, std::size_t most, core::Reading reading) {
  const std::string machine = machine_of(result.runs.front().info);
  History out{.past = {.name = "history", .runs = {}}, .now = {.name = result.name, .runs = {}}};
  std::set<std::string> kept;
  std::vector<core::Run>& past = out.past.runs;
  for (const auto& path : result_files(directory)) {
    for (auto& run : core::read_results(path, reading, core::RawTimes::left_out).runs)
      if (machine_of(run.info) == machine && kept.insert(run.info.run_id).second) past.push_back(std::move(run));
  }
  std::ranges::copy_if(result.runs, std::back_inserter(out.now.runs),
                       [&](const core::Run& run) { return !kept.contains(run.info.run_id); });
  out.already_archived = result.runs.size() - out.now.runs.size();
  if (out.now.runs.empty()) {
    out.now = result;
    std::set<std::string> own;
    for (const auto& run : result.runs) own.insert(run.info.run_id);
    std::erase_if(past, [&](const core::Run& run) { return own.contains(run.info.run_id); });
  }
  if (past.empty()) return out;
  std::ranges::stable_sort(past, [](const auto& x, const auto& y) { return x.info.time < y.info.time; });
  const std::vector<std::size_t> origins = origins_of(past);
  std::vector<core::Run> replicates;
  for (std::size_t r = 0; r < past.size(); ++r)
    if (origins[r] == origins.back()) replicates.push_back(std::move(past[r]));
  out.other_origins = past.size() - replicates.size();
  past = std::move(replicates);
  if (past.size() > most) past.erase(past.begin(), past.end() - static_cast<std::ptrdiff_t>(most));
  return out;
}

fs::path archive(const fs::path& file, std::span<const core::Run> runs, const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  check(error, "mkdir", directory);
  fs::path archived;
  for (int number = 1;; ++number) {
    archived = directory / file_name(runs.front().info, number);
    if (!fs::exists(archived, error)) break;
    const auto there = core::read_results(archived, core::Reading::lenient, core::RawTimes::left_out).runs;
    if (are_among(runs, there)) return archived;
    if (are_among(there, runs)) break;
  }
  const fs::path partial = directory / fmt::format(".{}.{}", archived.filename().string(), ::getpid());
  fs::copy_file(file, partial, error);
  check(error, "copy", partial);
  fs::rename(partial, archived, error);
  check(error, "rename", archived);
  return archived;
}

}  // namespace gradmeter::analysis
