// The rows that findings are concluded from: launches merged, grouped by what is equal, named by what differs.
#pragma once
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/findings.hpp"
#include "analysis/merged.hpp"

namespace gradmeter::analysis::detail {

using Axes = std::vector<core::Factor>;

/// A point over its launches.
struct Row {
  core::Point point;
  std::vector<SourceRow> sources;
  std::size_t origin = 0;  ///< index of its machine and build

  double number(core::Metric m) const { return point.metrics.number(m); }
  /// Empty for null.
  std::string text(core::Factor) const;
  std::string text(core::Metric) const;
  /// 0 where it is no whole number.
  std::int64_t whole(core::Factor) const;
  bool is_true(core::Metric) const;
  bool is_ok() const { return point.status == core::Status::ok; }
};
using Group = std::vector<const Row*>;

/// A number or a summary's median, with its interval: of a summary its own, of others from metrics `_ci95_low` and
/// `_ci95_high`.
Figure time_of(const Row&);
Figure efficiency_of(const Row&);

/// The outcome of comparing two intervals. A missing one decides nothing, not even that they overlap.
enum class Relation : std::uint8_t { less, greater, not_shown, unknown };
Relation compare(const Figure& a, const Figure& b);
/// a/b with the interval that both intervals allow.
Figure ratio(const Figure& a, const Figure& b);

/// Efficiency that no measuring error explains: above 105 % by its whole interval, or above 110 % without one.
bool is_implausible(const Row&);
/// Efficiency with an interval, not implausible: only from such rows of `scale` something is concluded.
bool has_efficiency(const Row&);

class Rows {
 public:
  explicit Rows(std::span<const core::Run>);
  std::span<const core::Run> runs() const { return runs_; }
  const std::vector<Row>& all() const { return rows_; }
  std::vector<std::string> experiments() const;
  std::size_t origins() const { return origin_labels_.size(); }
  /// Five launches more of the command that measured the row (conditions.hpp, `repeat_command`).
  std::string again(const Row&) const;
  /// "node1, commit 1a2b": what tells the origin from the others.
  const std::string& origin_label(std::size_t origin) const { return origin_labels_[origin]; }

  /// Rows of an experiment that are ok and wanted, in groups that agree in origin and in all factors but `axes`, in
  /// order of first appearance.
  std::vector<Group> groups(std::string_view experiment, const Axes& axes,
                            const std::function<bool(const Row&)>& wanted) const;

  /// The words for a group: the subject ("resnet50", "allreduce of 25 MiB") and the rest (" at batch 4 on 2 ranks over
  /// 1gbe, in place"): all factors that its rows share and that tell rows of the experiment apart.
  struct Where {
    std::string subject, rest;
    std::string both() const { return subject + rest; }
  };
  Where where(const Group&, const Axes& over) const;
  /// A factor's value in words; parameters where the experiment has several of the same words.
  std::string words(const Row&, core::Factor) const;

  /// A finding of the group's rows, with shared factors and caveats; the sentence becomes one with a capital and a
  /// stop.
  Finding finding(FindingKind, const Group&, const Axes& over, const std::string& sentence) const;

 private:
  void label_origins(const std::vector<std::string>& origins);
  /// Factors that tell rows of an experiment apart, none that follows from those before it.
  const Axes& telling(const std::string& experiment) const;

  std::span<const core::Run> runs_;
  std::vector<Row> rows_;
  std::vector<std::size_t> origin_of_run_;
  std::vector<std::string> origin_labels_;
  std::map<std::string, Axes> telling_;
  std::map<std::pair<std::string, core::Factor>, std::vector<core::Value>> values_;
};

/// With a stop, and a capital where it does not begin with the name of a model.
std::string as_sentence(std::string text, bool has_name);
/// "61 %"; "61 % (60–62 %)".
std::string percent(double share);
std::string percent(const Figure&);
/// "5.79 ms (5.5–6.0 ms)".
std::string seconds(const Figure&);
/// "× 1.56 (1.50–1.60)".
std::string times(const Figure&);
/// " (disturbed)" and so on: what spoils a group's figures; empty: nothing.
std::string caveats(const Group&);

/// Rules: each adds what it finds.
void find_mixed_machines(const Rows&, std::vector<Finding>&);
void find_outlier_launches(const Rows&, std::vector<Finding>&);
void find_shared_cores(const Rows&, std::vector<Finding>&);
void find_slow_ranks(const Rows&, std::vector<Finding>&);
void find_slow_links(const Rows&, std::vector<Finding>&);
void find_disturbances(const Rows&, std::vector<Finding>&);
void find_efficiency(const Rows&, std::vector<Finding>&);
void find_changes(const Rows&, std::vector<Finding>&);
void find_fastest_exchange(const Rows&, std::vector<Finding>&);
void find_rooflines(const Rows&, std::vector<Finding>&);
void find_crossovers(const Rows&, std::vector<Finding>&);
void find_accuracy(const Rows&, std::vector<Finding>&);
void find_replays(const Rows&, std::vector<Finding>&);
void find_gaps(const Rows&, std::vector<Finding>&);

}  // namespace gradmeter::analysis::detail
