// SPDX-License-Identifier: Apache-2.0
// Conclusions from the points, as structured findings from which a report's sentences are printed.
// src/analysis/README.md, "The findings", states the rules.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/launches.hpp"
#include "core/json.hpp"
#include "core/result_file.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis {

/// Kinds, from the most important to the least: what makes a comparison invalid, what is broken, which setting would be
/// faster, what else was found, and which points have no figure.
enum class FindingKind : std::uint8_t {
  mixed_machines,    ///< points of several machines, builds or conditions in one side
  outlier_launch,    ///< one of three or more launches differs from the others far beyond their spread
  shared_cores,      ///< more busy threads than cores, other processes, or ranks that slow each other down
  slow_rank,         ///< a rank that takes longer than the others to compute, or for its calls
  slow_host,         ///< a host whose links are slower than those of the others
  slow_link,         ///< a link that is slower than expected from its two hosts
  disturbance,       ///< disturbances, drift and long windows in a soak (links timed for hours, analysis/links.hpp)
  change,            ///< the effect of changing one factor's value, with all other factors equal
  fastest_exchange,  ///< the fastest algorithm of one collective at one size
  small_batch,       ///< a larger mini-batch raises efficiency by much, as disjoint 95 % intervals show
  lost_to,           ///< the causes of a step's lost time
  nothing_wrong,     ///< an experiment in which none of the above was found
  efficiency,        ///< a curve of efficiency over the mini-batch
  accuracy,          ///< the accuracy that training reached
  crossover,         ///< links on which a codec pays
  roofline,          ///< the rates that kernels reach
  replayed,          ///< a replayed step compared with its trace
  compared,          ///< one set of launches compared with another by `compare`
  not_trusted,       ///< rows from which nothing is concluded
  no_figure          ///< points that were not measured
};
/// The name as in JSON: "slow_rank".
std::string_view name(FindingKind);

struct Finding {
  FindingKind kind = FindingKind::nothing_wrong;
  std::string experiment = {};
  core::Factors factors = {};           ///< the values that all its rows share
  std::vector<core::Factor> over = {};  ///< factors in which the rows may differ; the sentence names these factors
  std::map<std::string, Estimate> figures = {};  ///< by their name, such as "efficiency"
  std::optional<double> probability = {};        ///< probability of a cause
  /// How bad the finding is: for most kinds the share of the time that is lost (some kinds multiply it by a weight);
  /// for others a fixed number or a ratio. Among findings of equal importance, the largest comes first.
  double severity = 0;
  std::string sentence = {};
  std::string next = {};             ///< command to run next; empty: none
  std::vector<SourceRow> rows = {};  ///< the points from which the finding was concluded
};

/// Concludes findings from runs, the most important first. Launches are merged if machine, build and conditions agree.
/// The rows of one finding have the same machine, build, conditions and factors, except for the factors in `over`. Only
/// findings that count rows (mixed_machines, nothing_wrong, not_trusted, no_figure) may mix rows that differ in these.
/// A difference is named only if 95 % intervals are known and disjoint. Cost: O(points²) within an experiment's group
/// at worst.
std::vector<Finding> findings(std::span<const core::Run>);

/// {"kind", "experiment", "factors", "over", "figures": {NAME: {"value", "low", "high"}}, "probability", "sentence",
/// "next"}; unknown values are null.
core::Json to_json(const Finding&);

/// 0.66 is "two thirds", 0.97 is "almost all"; a share near no simple fraction is a percentage, "41 %".
std::string share_in_words(double share);

/// Says, for the largest gradient of a `codecs` sweep, by what factor each codec speeds up an exchange. The factor is
/// w0/(w + (w0 - w)·L/X), where w0 and w are the bits of an element without and with the codec, L is `link`, and X is
/// the link speed below which the codec pays (compression/crossover.hpp). The 95 % interval follows from that of the
/// codec's times. Where no codec has such a speed, the sentence says so. Empty without a measured codec.
std::optional<Finding> codecs_on_link(std::span<const core::Point>, core::BytesPerSecond link);

}  // namespace gradmeter::analysis
