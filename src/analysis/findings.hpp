// What the points say, as structured findings from which the sentences of a report are printed.
// docs/using.md, "The sentences of a report", states the rules.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/merged.hpp"
#include "core/json.hpp"
#include "core/result_file.hpp"

namespace gradmeter::analysis {

/// In the order in which they matter to a person: what spoils a comparison, what is broken, what a setting would win,
/// what was found beside, and what has no figure.
enum class FindingKind : std::uint8_t {
  mixed_machines,    ///< points of several machines or builds in one side
  outlier_launch,    ///< one of three or more launches differs from the others far beyond their spread
  shared_cores,      ///< more busy threads than cores, other processes, or ranks that slow each other down
  slow_rank,         ///< a rank that computes or calls longer than the others
  slow_host,         ///< a host whose links are slower than those of the others
  slow_link,         ///< a link that is slower than its ends explain
  disturbance,       ///< a soak's disturbances, drift and long windows
  change,            ///< one value of a factor instead of another, all others equal
  fastest_exchange,  ///< of the algorithms of one collective at one size
  small_batch,       ///< a larger mini-batch surely raises efficiency much
  lost_to,           ///< what a step's lost time went to
  nothing_wrong,     ///< looked at, and nothing of the above
  efficiency,        ///< over the mini-batch, of one curve
  accuracy,          ///< that training reached
  crossover,         ///< links on which a codec pays
  roofline,          ///< what kernels reach
  replayed,          ///< a replayed step against its trace
  not_trusted,       ///< rows from which nothing is concluded
  no_figure          ///< points that were not measured
};
/// "slow_rank"
std::string_view name(FindingKind);

/// A number with its 95 % interval; NaN where that is not known.
struct Figure {
  double value = std::numeric_limits<double>::quiet_NaN();
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
};

struct Finding {
  FindingKind kind = FindingKind::nothing_wrong;
  std::string experiment = {};
  core::Factors factors = {};                  ///< the values that all rows behind it share
  std::vector<core::Factor> over = {};         ///< factors in which these rows may differ; the sentence names them
  std::map<std::string, Figure> figures = {};  ///< by their name, such as "efficiency"
  std::optional<double> probability = {};      ///< of a cause
  double severity = 0;                         ///< share of the time that it costs; orders findings of one kind
  std::string sentence = {};
  std::string next = {};             ///< the command to run next; empty: none
  std::vector<SourceRow> rows = {};  ///< the points that it was concluded from
};

/// Of a side, the most important first. Launches are merged where machine and build agree. Rows behind one finding
/// agree in all factors but those that it names in `over`, in machine and in build; only counts of rows
/// (mixed_machines, nothing_wrong, not_trusted, no_figure) go over all of them. A difference is named only where 95 %
/// intervals are known and disjoint. Cost: O(points²) within an experiment's group at worst.
std::vector<Finding> findings(std::span<const core::Run>);

/// {"kind", "experiment", "factors", "over", "figures": {NAME: {"value", "low", "high"}}, "probability", "sentence",
/// "next"}; null where it is not known.
core::Json to_json(const Finding&);

/// 0.66 is "two thirds"; shares that no simple fraction is near are "41 %".
std::string share_in_words(double share);

}  // namespace gradmeter::analysis
