#include "analysis/launches.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/conditions.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/quoting.hpp"

namespace gradmeter::analysis {
namespace {

bool chosen(const core::Point& point, const Selection& selection) {
  return std::all_of(selection.only.begin(), selection.only.end(),
                     [&](const auto& wanted) { return core::to_text(point.factors[wanted.first]) == wanted.second; });
}

std::string key_of(const core::Point& point) {
  return fmt::format("{} {}", core::key_part(point.experiment), point.factors.key());
}

core::Point without(core::Point point, std::span<const core::Factor> ignored) {
  for (const auto f : ignored) point.factors[f] = {};
  return point;
}

/// The last point of each key.
std::vector<core::Point> points_of(const core::Run& run, const Selection& selection) {
  std::map<std::string, std::size_t> places;
  std::vector<core::Point> out;
  for (const core::Point& point : run.points) {
    if (!chosen(point, selection)) continue;
    core::Point kept = without(point, selection.ignored);
    const auto [place, is_new] = places.emplace(key_of(kept), out.size());
    if (is_new) {
      out.push_back(std::move(kept));
    } else {
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
  } else if (!(value > 0) || !std::isfinite(value)) {
    why = fmt::format("no positive {}", core::name(metric));
  } else {
    to.values.push_back(value);
  }
  if (to.reason.empty()) to.reason = std::move(why);
  to.sample = std::move(point);
}

template <class Key>
Key find_key(std::string_view what, std::span<const core::KeyInfo> table, const std::string& name) {
  std::vector<std::string> known;
  for (const auto& row : table) known.emplace_back(row.key);
  const auto found = std::find(known.begin(), known.end(), name);
  if (found != known.end()) return static_cast<Key>(found - known.begin());
  const std::string near = core::nearest(name, known);
  throw core::UsageError(fmt::format("{} '{}' is not known{}; see gradmeter list {}s", what, name,
                                     near.empty() ? "" : fmt::format(" (did you mean {}?)", near), what));
}

}  // namespace

LaunchedPoints::LaunchedPoints(std::span<const core::Run> runs, const Selection& selection) {
  for (const core::Run& run : runs) {
    for (core::Point& point : points_of(run, selection)) {
      const std::string key = key_of(point);
      const auto [place, is_new] = points_.try_emplace(key);
      if (is_new) keys_.push_back(key);
      add_launch(place->second, std::move(point), selection.metric);
      place->second.origins.insert(origin_of(run.info));
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
    const auto found = std::find_if(out.begin(), out.end(), [&](const Side& s) { return s.name == name; });
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
    const auto found = std::find(names.begin(), names.end(), baseline);
    if (found == names.end()) core::refuse_unknown(core::name(factor), baseline, names);
    std::rotate(out.begin(), out.begin() + (found - names.begin()), out.begin() + (found - names.begin()) + 1);
  }
  if (out.size() < 2) {
    throw core::UsageError(fmt::format("the points have {} of {}: nothing to compare; name files with several",
                                       out.empty() ? "no value" : "one value", core::name(factor)));
  }
  return out;
}

void refuse_twice(std::span<const Side> sides) {
  std::set<std::string> known;
  for (const Side& side : sides) {
    for (const core::Run& run : side.runs) {
      if (known.insert(run.info.run_id).second) continue;
      throw core::UsageError(
          fmt::format("{}: its launch {} is named twice; name each launch once", side.name, run.info.run_id));
    }
  }
}

int better_direction(core::Metric metric) {
  const core::KeyInfo& row = core::metric_table()[static_cast<std::size_t>(metric)];
  if (row.unit == "s") return -1;
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

}  // namespace gradmeter::analysis
