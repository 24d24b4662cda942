// SPDX-License-Identifier: Apache-2.0
#include "analysis/findings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "analysis/sentences/sentences.hpp"
#include "core/format.hpp"

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;

/// The importance of a finding, from the most to the least: it spoils other figures, something is broken, something can
/// be improved, nothing is wrong, it describes, it counts rows.
enum class Importance : std::uint8_t { spoils, broken, improvable, fine, described, counted };

struct KindRow {
  std::string_view name;
  Importance importance;
};
/// The kinds in the order of FindingKind.
constexpr std::array kinds{KindRow{"mixed_machines", Importance::spoils},
                           KindRow{"outlier_launch", Importance::spoils},
                           KindRow{"shared_cores", Importance::spoils},
                           KindRow{"slow_rank", Importance::broken},
                           KindRow{"slow_host", Importance::broken},
                           KindRow{"slow_link", Importance::broken},
                           KindRow{"disturbance", Importance::broken},
                           KindRow{"change", Importance::improvable},
                           KindRow{"fastest_exchange", Importance::improvable},
                           KindRow{"small_batch", Importance::improvable},
                           KindRow{"lost_to", Importance::improvable},
                           KindRow{"nothing_wrong", Importance::fine},
                           KindRow{"efficiency", Importance::described},
                           KindRow{"accuracy", Importance::described},
                           KindRow{"crossover", Importance::described},
                           KindRow{"roofline", Importance::described},
                           KindRow{"replayed", Importance::described},
                           KindRow{"compared", Importance::described},
                           KindRow{"not_trusted", Importance::counted},
                           KindRow{"no_figure", Importance::counted}};
const KindRow& row_of(FindingKind kind) { return kinds.at(static_cast<std::size_t>(kind)); }

/// The weight of a finding. An improvement whose severity is 0, so that no difference is beyond doubt, only describes.
Importance importance_of(const Finding& f) {
  const Importance importance = row_of(f.kind).importance;
  return importance == Importance::improvable && !(f.severity > 0) ? Importance::described : importance;
}

/// Orders findings by weight, then by kind, then by severity. All improvements are one kind here, and so are slow hosts
/// and slow links.
bool is_before(const Finding& a, const Finding& b) {
  const auto key = [](const Finding& f) {
    const Importance w = importance_of(f);
    const auto kind = w == Importance::improvable        ? FindingKind::change
                      : f.kind == FindingKind::slow_link ? FindingKind::slow_host
                                                         : f.kind;
    return std::tuple(w, kind, -f.severity);
  };
  return key(a) < key(b);
}

/// True if the rules can find something wrong in a row. Without an interval they find no difference, except in a soak,
/// whose intervals of time are held against each other.
bool can_be_judged(const detail::MergedRow& row) {
  if (row.point.experiment == "scale") return has_efficiency(row);
  if (row.point.experiment == "soak" || !row.text(Metric::slow_ranks).empty()) return true;
  return std::ranges::any_of(std::array{Metric::time_s, Metric::latency_s}, [&](Metric m) {
    const auto* s = row.point.metrics[m].as<core::Summary>();
    return s && std::isfinite(s->ci95_low) && std::isfinite(s->ci95_high);
  });
}

/// Adds a finding for each experiment that has no finding of a higher weight than `fine`. Only rows that can be judged
/// count. That steps lose no speed is said only if their intervals show it.
void find_nothing_wrong(const detail::MergedRows& rows, std::vector<Finding>& out) {
  static const std::set<std::string_view> looked_at{"scale", "allreduce", "links", "soak", "kernels", "infer"};
  for (const auto& experiment : rows.experiments()) {
    if (!looked_at.contains(experiment)) continue;
    const bool has_something = std::ranges::any_of(
        out, [&](const Finding& f) { return f.experiment == experiment && importance_of(f) < Importance::fine; });
    Finding f{.kind = FindingKind::nothing_wrong, .experiment = experiment};
    const bool are_steps = experiment == "scale";
    const detail::MergedRow* least = nullptr;
    std::size_t used = 0, all = 0;
    bool nothing_lost = true;
    for (const auto& row : rows.all()) {
      if (row.point.experiment != experiment || !row.is_ok() || (are_steps && row.whole(Factor::ranks) < 2)) continue;
      ++all;
      if (!can_be_judged(row)) continue;
      ++used;
      f.rows.insert(f.rows.end(), row.sources.begin(), row.sources.end());
      if (!are_steps) continue;
      nothing_lost = nothing_lost && detail::efficiency_of(row).low >= detail::lossless_efficiency;
      if (!least || row.number(Metric::efficiency) < least->number(Metric::efficiency)) least = &row;
    }
    if (has_something || used == 0) continue;
    f.figures["rows"].value = static_cast<double>(used);
    const std::string_view shows = used == 1 ? "shows" : "show";
    f.sentence =
        fmt::format("{} {}no slow part, no shared core and no outlying launch{}",
                    used < all  ? fmt::format("Of {} rows of {} {} can be judged and {}", all, experiment, used, shows)
                    : used == 1 ? fmt::format("The row of {} {}", experiment, shows)
                                : fmt::format("The {} rows of {} {}", used, experiment, shows),
                    nothing_lost ? "no loss, " : "", nothing_lost ? "" : "; whether speed is lost is not shown");
    if (least) {
      const Estimate e = detail::efficiency_of(*least);
      f.figures["least_efficiency"] = e;
      f.sentence +=
          fmt::format("; the lowest efficiency is {}, of {} at batch {}", detail::percent(e),
                      rows.describe({least}, {Factor::batch_per_rank}).both(), least->whole(Factor::batch_per_rank));
    }
    f.sentence += ".";
    out.push_back(std::move(f));
  }
}

}  // namespace

std::string_view name(FindingKind kind) { return row_of(kind).name; }

std::string share_in_words(double share) {
  constexpr double near = 0.035;
  for (const auto& [fraction, words] : {std::pair{1.0 / 4, "a quarter"},
                                        {1.0 / 3, "a third"},
                                        {1.0 / 2, "half"},
                                        {2.0 / 3, "two thirds"},
                                        {3.0 / 4, "three quarters"}})
    if (std::abs(share - fraction) <= near) return words;
  return share > 0.95 ? "almost all" : detail::percent(share);
}

std::vector<Finding> findings(std::span<const core::Run> runs) {
  const detail::MergedRows rows(runs);
  std::vector<Finding> out;
  for (auto* find :
       {detail::find_mixed_machines, detail::find_outlier_launches, detail::find_shared_cores, detail::find_slow_ranks,
        detail::find_slow_links, detail::find_disturbances, detail::find_efficiency, detail::find_changes,
        detail::find_fastest_exchange, detail::find_rooflines, detail::find_crossovers, detail::find_accuracy,
        detail::find_replays, detail::find_gaps})
    find(rows, out);
  find_nothing_wrong(rows, out);
  std::ranges::stable_sort(out, is_before);
  return out;
}

core::Json to_json(const Finding& f) {
  const auto number = [](double x) { return std::isfinite(x) ? core::Json(x) : core::Json(nullptr); };
  core::Json factors = core::Json::object(), figures = core::Json::object(), over = core::Json::array();
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto factor = static_cast<Factor>(i);
    const core::Value& value = f.factors[factor];
    const std::string key(core::name(factor));
    if (const auto* text = value.as<std::string>()) factors[key] = *text;
    if (const auto* count = value.as<std::int64_t>()) factors[key] = *count;
    if (const auto* truth = value.as<bool>()) factors[key] = *truth;
    if (const auto* real = value.as<double>()) factors[key] = number(*real);
  }
  for (const Factor factor : f.over) over.push_back(core::name(factor));
  for (const auto& [key, figure] : f.figures)
    figures[key] = {{"value", number(figure.value)}, {"low", number(figure.low)}, {"high", number(figure.high)}};
  return {{"kind", name(f.kind)},   {"experiment", f.experiment},
          {"factors", factors},     {"over", over},
          {"figures", figures},     {"probability", f.probability ? number(*f.probability) : core::Json(nullptr)},
          {"sentence", f.sentence}, {"next", f.next.empty() ? core::Json(nullptr) : core::Json(f.next)}};
}

}  // namespace gradmeter::analysis
