// SPDX-License-Identifier: Apache-2.0
// The rows from which findings are drawn: merged over launches, grouped by equal factors, and named by the factors in
// which they differ.
#pragma once
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/findings.hpp"
#include "analysis/launches.hpp"

namespace gradmeter::analysis::detail {

/// Factors in which the rows of one group may differ.
using Axes = std::vector<core::Factor>;

/// A point merged over its launches.
struct MergedRow {
  core::Point point;
  std::vector<SourceRow> sources;
  std::size_t origin = 0;  ///< number of its origin (`origins_of`)
  /// For each factor in which the experiment's rows differ, a number that stands for the row's value. Values with equal
  /// texts have equal numbers, so that rows are grouped without comparing texts. Empty for a row that is not ok.
  std::vector<std::uint32_t> values = {};

  double number(core::Metric m) const { return point.metrics.number(m); }
  /// The factor's value as text; empty for null.
  std::string text(core::Factor) const;
  std::string text(core::Metric) const;
  /// The factor's value as a whole number; 0 if it is not one.
  std::int64_t whole(core::Factor) const;
  bool is_true(core::Metric) const;
  bool is_ok() const { return point.status == core::Status::ok; }
};
using Group = std::vector<const MergedRow*>;

/// The row's time (a summary's median, or a single number) and its efficiency, with 95 % intervals as far as these are
/// known: the summary's own interval, and that in the metrics `efficiency_ci95_low` and `efficiency_ci95_high`.
Estimate time_of(const MergedRow&);
Estimate efficiency_of(const MergedRow&);

/// How one value compares with another by their 95 % intervals. not_shown: the intervals overlap. unknown: an interval
/// is missing.
enum class Relation : std::uint8_t { less, greater, not_shown, unknown };
Relation compare(const Estimate& a, const Estimate& b);
/// a/b with the widest interval that the 95 % intervals of a and b allow.
Estimate ratio(const Estimate& a, const Estimate& b);

/// True if the efficiency is too high to be true: its 95 % interval lies above 105 %, or, if it has no interval, it is
/// above 110 %.
bool is_implausible(const MergedRow&);
/// True if the row has an efficiency that has a 95 % interval and is not implausible. The efficiency of other rows of
/// `scale` is not judged.
bool has_efficiency(const MergedRow&);
/// Speed is lost if the whole interval of efficiency lies below this; no speed is lost if it lies above.
inline constexpr double lossless_efficiency = 0.97;

class MergedRows {
 public:
  explicit MergedRows(std::span<const core::Run>);
  std::span<const core::Run> runs() const { return runs_; }
  const std::vector<MergedRow>& all() const { return rows_; }
  std::vector<std::string> experiments() const;
  std::size_t origins() const { return origin_labels_.size(); }
  /// The command that measures the row again, in five more launches (`analysis::repeat_command`).
  std::string command_to_repeat(const MergedRow&) const;
  /// The facts in which the origin (a machine, build and conditions) differs from the other origins: "node1, commit
  /// 1a2b".
  const std::string& origin_label(std::size_t origin) const { return origin_labels_[origin]; }

  /// The rows of an experiment that are ok and wanted, in groups. A group's rows agree in origin and in all factors but
  /// `axes`; groups come in order of first appearance.
  std::vector<Group> groups(std::string_view experiment, const Axes& axes,
                            const std::function<bool(const MergedRow&)>& wanted) const;

  /// A group in words: the subject ("resnet50", "allreduce of 25 MiB") and the rest (" at batch 4 on 2 ranks over 1gbe,
  /// in place"). They name all factors that the group's rows share and that differ among rows of the experiment.
  struct Description {
    std::string subject, rest;
    std::string both() const { return subject + rest; }
  };
  Description describe(const Group&, const Axes& over) const;
  /// A factor's value in words, with parameters if several values of the experiment have the same words.
  std::string words(const MergedRow&, core::Factor) const;
  /// The algorithm with its transport and its table, as far as it has them: "ring/shm", "auto/shm tuned 1a2b".
  std::string algorithm(const MergedRow&) const;

  /// A finding from the group's rows, with the factors that they share. Its sentence also gets the rows' caveats, a
  /// capital letter and a full stop.
  Finding finding(FindingKind, const Group&, const Axes& over, const std::string& sentence) const;

 private:
  void label_origins();
  void number_values(const std::string& experiment);
  /// The factors that differ among the rows of an experiment, except those that follow from earlier factors.
  const Axes& distinguishing_factors(const std::string& experiment) const;

  std::span<const core::Run> runs_;
  std::vector<MergedRow> rows_;
  std::vector<std::size_t> origin_of_run_;
  std::vector<std::string> origin_labels_;
  std::map<std::string, Axes> distinguishing_factors_;
  std::map<std::string, Axes, std::less<>> differing_;  ///< all factors in which rows of an experiment differ
  /// All values of each factor in each experiment. `words` compares them, to tell apart values that read alike.
  std::map<std::pair<std::string, core::Factor>, std::vector<core::Value>> values_;
};

/// Adds a full stop, and begins with a capital letter unless `has_name` says that the text begins with a model's name.
std::string as_sentence(std::string text, bool has_name);
/// "61 %"; "61 % (60–62 %)".
std::string percent(double share);
std::string percent(const Estimate&);
/// "5.79 ms (5.5–6.0 ms)".
std::string seconds(const Estimate&);
/// "× 1.56 (1.50–1.60)".
std::string times(const Estimate&);

}  // namespace gradmeter::analysis::detail
