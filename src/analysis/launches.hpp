// What each launch measured of each point: result files turned into replicates.
#pragma once
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/result_file.hpp"

namespace gradmeter::analysis {

/// One of the things compared: a name to show, and the runs that are its launches.
struct Side {
  std::string name;
  std::vector<core::Run> runs;
};

/// Which points are looked at, what makes two of them the same, and which number of them is compared.
struct Selection {
  core::Metric metric = core::Metric::time_s;
  std::map<core::Factor, std::string> only;  ///< values, as text
  std::vector<core::Factor> ignored;         ///< factors in which points of one key may differ
};

/// A point over all launches of a side.
struct LaunchedPoint {
  core::Point sample;                  ///< the last launch's, without ignored factors
  std::vector<double> values;          ///< the metric's median in each launch that measured it
  std::size_t launches = 0;            ///< that have the point at all
  std::string reason;                  ///< of the first launch that has it and no number of it
  std::set<std::string> origins = {};  ///< machines and builds of the launches: of several they are no replicates
};

/// By experiment and factors, in order of first appearance.
class LaunchedPoints {
 public:
  /// A key that a run has twice, as training has one for each epoch, counts once, with its last value.
  LaunchedPoints(std::span<const core::Run>, const Selection&);
  const std::vector<std::string>& keys() const { return keys_; }
  /// Null where no launch has it.
  const LaunchedPoint* find(const std::string& key) const;

 private:
  std::map<std::string, LaunchedPoint> points_;
  std::vector<std::string> keys_;
};

/// The points of all runs, sorted into sides by their value of a factor, in order of appearance; `baseline` comes
/// first. Errors: UsageError where no point has the baseline, or where there is one value only.
std::vector<Side> sides_by(core::Factor, std::span<const core::Run>, const std::string& baseline);

/// Errors: UsageError where a launch is there twice: it would be held against itself, or make an interval too narrow.
void refuse_twice(std::span<const Side>);

/// +1: more is better (a rate, a share), −1: less is (a time).
/// Errors: UsageError for a metric that has no better direction.
int better_direction(core::Metric);

/// By name. Errors: UsageError with the nearest known one.
core::Metric find_metric(const std::string& name);
core::Factor find_factor(const std::string& name);

}  // namespace gradmeter::analysis
