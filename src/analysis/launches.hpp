// SPDX-License-Identifier: Apache-2.0
// Launches as replicates: the values of each point by launch, the sides of a comparison, the merging of launches, the
// conditions in which launches differ, and directories of past results.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/result_file.hpp"

namespace gradmeter::analysis {

/// A number with its 95 % interval, which is NaN if not known.
struct Estimate {
  double value = std::numeric_limits<double>::quiet_NaN();
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
  bool has_interval() const { return std::isfinite(low) && std::isfinite(high); }
};

/// One of the things compared: its name, and the runs that are its launches.
struct Side {
  std::string name;
  std::vector<core::Run> runs;
};

/// Selects the points to compare, the factors that identify a point, and the metric.
struct PointSelection {
  core::Metric metric = core::Metric::time_s;
  std::map<core::Factor, std::string> only;  ///< the values that points must have, as text
  std::vector<core::Factor> ignored;         ///< factors that do not count in a point's key
};

/// A point over all launches of a side.
struct LaunchedPoint {
  core::Point last_point;        ///< the last launch's point, without ignored factors
  std::vector<double> values;    ///< the metric's median in each launch in which it is positive
  std::size_t launches = 0;      ///< number of launches that have the point, with or without a number
  std::size_t not_positive = 0;  ///< number of launches in which the metric is zero or less, so that it has no ratio
  std::string reason;            ///< why `values` lacks the first launch that has the point but no usable number
  bool oversubscribed = false, disturbed = false;  ///< true if they are true of any launch
  /// origins of the launches (`origins_of`); with several, the launches are no replicates
  std::set<std::size_t> origins = {};
};

/// The points of some runs by experiment and factors, in order of first appearance.
class LaunchedPoints {
 public:
  /// A key that a run has several times (training has a point for each epoch) counts once, with its last value. Errors:
  /// UsageError if such points differ in an ignored factor: all but one would be dropped.
  LaunchedPoints(std::span<const core::Run>, const PointSelection&);
  const std::vector<std::string>& keys() const { return keys_; }
  /// The point; null if no launch has it.
  const LaunchedPoint* find(const std::string& key) const;

 private:
  std::map<std::string, LaunchedPoint> points_;
  std::vector<std::string> keys_;
};

/// Sorts the points of all runs that have a value of the factor into sides by it. Sides come in order of appearance,
/// but `baseline` (empty: none) first. Errors: UsageError if no point has the baseline, or if the points have fewer
/// than two values of the factor.
std::vector<Side> sides_by(core::Factor, std::span<const core::Run>, const std::string& baseline);

/// Errors: UsageError if a launch occurs twice: it would be compared with itself, or make an interval too narrow.
void require_each_launch_once(std::span<const Side>);

/// Errors: UsageError if a point was predicted: it has no launches, and a ratio to it says nothing of a machine.
void refuse_predicted(const Side&);

/// +1: larger is better (a rate, a share). −1: smaller is better (a time). Errors: UsageError for a metric without a
/// better direction, such as overlap_s: more overlap may also mean that there is more to hide.
int better_direction(core::Metric);

/// Finds a metric or a factor by its name. Errors: UsageError with the nearest known name.
core::Metric find_metric(const std::string& name);
core::Factor find_factor(const std::string& name);

// The conditions, beside the points' factors, in which two sides' launches differ, and whether the order of launches in
// time may explain a difference.

/// A line "commit: 1a2b to 3c4d" for each difference: program, hosts, processor, MPI, binding, libraries, environment,
/// GPUs. Where only some launches of a side have a variable, its values include "none".
std::vector<std::string> differing_conditions(const Side& a, const Side& b);

/// True if each side has several launches, and all launches of one side began before all of the other. If so, a drift
/// of the machine looks like a difference between the sides.
bool launched_in_two_blocks(const Side& a, const Side& b);

/// Hosts, processor and GPUs: the conditions that updates of drivers and libraries leave unchanged.
std::string machine_of(const core::RunInfo&);

/// Fingerprint, version, commit and libraries: the machine and the build.
std::string origin_of(const core::RunInfo&);

/// The number of each run's origin; numbers begin at 0, in order of first appearance. Launches of different origins are
/// not replicates of each other. Origins differ in machine or build (`origin_of`), or in a condition
/// (`core::conditions_of`). A condition counts only if it differs between runs of one machine and build with equally
/// many ranks on each node, since other differences only follow from the number of ranks. A missing condition differs
/// from every value.
std::vector<std::size_t> origins_of(std::span<const core::Run* const>);
std::vector<std::size_t> origins_of(std::span<const core::Run>);

/// The command of this program, changed to run on as many ranks as the run had: "mpirun -np 2 gradmeter ...", or with
/// --thread-ranks if the run had that. `gradmeter compare`, which takes no ranks, and commands of other programs stay
/// as they are.
std::string with_ranks_of(const core::RunInfo&, const std::string& command);

/// The command for this many more launches of the run: "scripts/launches.sh 5 -- mpirun -np 2 gradmeter ...". Empty if
/// the run's command is unknown or not gradmeter's, or has a flag to overwrite or complete its file.
std::string repeat_command(const core::RunInfo&, std::int64_t launches);

// Launches of one point merged into one: statements and charts of a side cover all its launches.

/// A point by its indices: `runs[run].points[point]`.
struct SourceRow {
  std::size_t run = 0, point = 0;
  auto operator<=>(const SourceRow&) const = default;
};

struct MergedPoint {
  core::Point point;
  std::size_t launches;
  std::vector<SourceRow> sources = {};  ///< one for each launch
};

/// Merges points of equal experiment, status, factors, step and epoch from launches of one origin (`origins_of`), in
/// order of first appearance. Times, rates, ratios of times and the statistics of a summary become geometric means over
/// launches if all values are positive, else medians. Other numbers become medians, and counts of samples become sums.
/// A 95 % interval, also one whose ends are metrics (efficiency_ci95_low), becomes the interval of the geometric mean,
/// or is left out if a launch's value is missing or not positive. Numbers that may be below zero (exposed_s,
/// accuracy_lost) or agree in all launches, so that their spread is not known, have another interval: from the lowest
/// to the highest end of the launches' own intervals, left out if one of these is missing. Accuracies are merged only
/// over the launches that learned by the same rule and from as many samples as the last launch. A boolean metric is
/// true if it is true in any launch. What bounds a step (`bound_by`) is decided anew, by the mean shares of its
/// candidates. The slowest rank is kept if two thirds of the launches name it. Other whole numbers, texts and the
/// timeline are those of the last launch. A point of one launch stays as it is, without its samples. Cost: O(n log n).
std::vector<MergedPoint> merge_launches(std::span<const core::Run* const>);
std::vector<MergedPoint> merge_launches(std::span<const core::Run>);

// Past results in a directory, as the baseline of new ones.

/// The result files in a directory, sorted by name. Errors: UsageError if the directory cannot be read.
std::vector<std::filesystem::path> result_files(const std::filesystem::path& directory);

/// The two sides of a comparison with the past results of a directory.
struct History {
  Side past;  ///< launches in the directory that are compared with `now`; without runs if there are none
  Side now;   ///< the result's launches that the directory does not have yet; if it has all of them, all
  std::size_t already_archived = 0;  ///< number of the result's launches that the directory has already
  /// number of past launches left out, since their build or conditions differ from the newest past launch's
  std::size_t other_origins = 0;
};

/// Splits the launches of a result and of a directory into past ones and new ones, so that a file to which launches are
/// appended is compared with its own past. Of the past launches from the result's machine (hosts, processor, GPUs),
/// `past` gets the newest `most` that have the newest one's origin (`origins_of`): others are no replicates.
History history_of(const Side& result, const std::filesystem::path& directory, std::size_t most, core::Reading);

/// Copies a result file with these runs into the directory, whole or not at all (a temporary file is renamed), and
/// returns the path. The copy is named by the first run's time and id. If the directory has a file of this name that
/// holds all of the runs, nothing is copied. If that file holds some of the runs and no others (it was copied before
/// the other launches were appended), the copy replaces it. Else the copy's name gets a number. Errors: BackendError,
/// and UsageError for a file in the directory that cannot be read.
std::filesystem::path archive(const std::filesystem::path& file, std::span<const core::Run> runs,
                              const std::filesystem::path& directory);

}  // namespace gradmeter::analysis
