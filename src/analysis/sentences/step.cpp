// SPDX-License-Identifier: Apache-2.0
// Findings about the efficiency of a step, the causes of its lost time, and the effect of one setting against another.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "analysis/sentences/sentences.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis::detail {
namespace {

using core::Factor;
using core::Metric;

const Axes batch_axes{Factor::batch_per_rank, Factor::batch_global};

/// Orders a curve at constant ranks, whose axis is the batch per rank.
bool has_smaller_batch(const MergedRow* a, const MergedRow* b) {
  return a->whole(Factor::batch_per_rank) < b->whole(Factor::batch_per_rank);
}
std::string at_batch(const MergedRow& row) { return fmt::format("batch {}", row.whole(Factor::batch_per_rank)); }

bool is_exchanged(const MergedRow& row) {
  return row.whole(Factor::ranks) > 1 && row.text(Factor::strategy) != "independent" && has_efficiency(row);
}

std::string model_command(const MergedRow& row, const std::string& flags) {
  std::string out =
      fmt::format("gradmeter scale --model {} --ranks {}", row.text(Factor::model), row.whole(Factor::ranks));
  if (const auto precision = row.text(Factor::precision); !precision.empty() && precision != "fp32")
    out += " --precision " + precision;
  return fmt::format("{} {}", out, flags);
}

// --- efficiency over the mini-batch

/// Finds the two rows that are furthest apart among those whose intervals do not overlap, the less efficient one first;
/// both null where all overlap.
std::pair<const MergedRow*, const MergedRow*> extremes(const Group& curve) {
  // Sorts rows by their lower ends and keeps for each the most efficient row up to it: so a curve of thousands of
  // batches needs no comparison of all pairs.
  struct Candidate {
    double low;
    std::size_t best;  ///< index of the most efficient row up to this one
  };
  const auto value_of = [&curve](std::size_t row) { return efficiency_of(*curve[row]).value; };
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < curve.size(); ++i) candidates.push_back({efficiency_of(*curve[i]).low, i});
  std::ranges::stable_sort(candidates, std::ranges::greater(), &Candidate::low);
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    const std::size_t before = candidates[i - 1].best, own = candidates[i].best;
    const double apart = value_of(before) - value_of(own);
    if (apart > 0 || (apart == 0 && before < own)) candidates[i].best = before;
  }
  std::pair<const MergedRow*, const MergedRow*> out;
  double most = 0;
  for (const MergedRow* row : curve) {
    const Estimate e = efficiency_of(*row);
    const auto end = std::ranges::partition_point(candidates, [&](const Candidate& c) { return c.low > e.high; });
    if (end == candidates.begin()) continue;
    const std::size_t best = std::prev(end)->best;
    if (value_of(best) - e.value <= most) continue;
    most = value_of(best) - e.value;
    out = {row, curve[best]};
  }
  return out;
}

/// True if efficiency rises (less: that of the smaller mini-batch is less) or falls (greater) beyond doubt between some
/// two rows. `curve` ascends in the mini-batch.
bool moves(const Group& curve, Relation way) {
  // the largest lower end and the smallest upper end of the rows so far
  Estimate ends{.low = -std::numeric_limits<double>::infinity(), .high = std::numeric_limits<double>::infinity()};
  for (const MergedRow* row : curve) {
    const Estimate e = efficiency_of(*row);
    if (way == Relation::less ? ends.high < e.low : ends.low > e.high) return true;
    ends.low = std::max(ends.low, e.low);
    ends.high = std::min(ends.high, e.high);
  }
  return false;
}

std::string how_efficient(const Group& curve) {
  if (curve.size() == 1)
    return fmt::format("efficiency is {} at {}", percent(efficiency_of(*curve[0])), at_batch(*curve[0]));
  const auto [low, high] = extremes(curve);
  if (!low) {
    const auto [least, most] = std::ranges::minmax_element(curve, [](const MergedRow* a, const MergedRow* b) {
      return efficiency_of(*a).value < efficiency_of(*b).value;
    });
    return fmt::format("no difference of efficiency is shown between {} and {}: it is {} at {} and {} at {}",
                       at_batch(*curve.front()), at_batch(*curve.back()), percent(efficiency_of(**least)),
                       at_batch(**least), percent(efficiency_of(**most)), at_batch(**most));
  }
  const bool rises = has_smaller_batch(low, high);
  const MergedRow *from = rises ? low : high, *to = rises ? high : low;
  if (moves(curve, Relation::less) && moves(curve, Relation::greater)) {
    return fmt::format("efficiency is lowest with {} at {}, highest with {} at {}", percent(efficiency_of(*low)),
                       at_batch(*low), percent(efficiency_of(*high)), at_batch(*high));
  }
  return fmt::format("efficiency {} from {} at {} to {} at {}", rises ? "rises" : "falls",
                     percent(efficiency_of(*from)), at_batch(*from), percent(efficiency_of(*to)), at_batch(*to));
}

void add_small_batch(const MergedRows& rows, const Group& curve, std::vector<Finding>& out) {
  constexpr double much = 1.25;
  const MergedRow* small = curve.front();
  const Estimate low = efficiency_of(*small);
  const MergedRow* larger = nullptr;  // the best of those that are better beyond doubt
  for (const MergedRow* row : curve) {
    const Estimate e = efficiency_of(*row);
    if (compare(low, e) == Relation::less && e.value >= much * low.value &&
        (!larger || e.value > efficiency_of(*larger).value))
      larger = row;
  }
  if (!larger) return;
  const Estimate high = efficiency_of(*larger);
  const auto described = rows.describe({small, larger}, batch_axes);
  Finding f = rows.finding(FindingKind::small_batch, {small, larger}, batch_axes,
                           fmt::format("{}: {} is small: efficiency is {}, and {} at {}", described.both(),
                                       at_batch(*small), percent(low), percent(high), at_batch(*larger)));
  f.figures["batch"].value = static_cast<double>(small->whole(Factor::batch_per_rank));
  f.figures["batch_larger"].value = static_cast<double>(larger->whole(Factor::batch_per_rank));
  f.figures["efficiency"] = low;
  f.figures["efficiency_larger"] = high;
  // A mini-batch also changes what is learnt, so another setting that wins as much comes first.
  constexpr double weight = 0.75;
  f.severity = weight * (1 - low.value / high.value);
  f.next = model_command(*small, fmt::format("--batch {}", larger->whole(Factor::batch_per_rank)));
  out.push_back(std::move(f));
}

// --- lost time

std::string_view cause_in_words(std::string_view cause) {
  static const std::map<std::string_view, std::string_view> words{
      {"memory", "ranks that slow each other down without any exchange"},
      {"cores", "ranks that share cores"},
      {"straggle", "a rank that computes longer than the others"},
      {"interference", "kernels that the exchange makes slower"},
      {"wait", "waiting for other ranks"},
      {"wire", "the transfer itself"},
      {"other", "work that a step without an exchange does not do"}};
  const auto found = words.find(cause);
  return found == words.end() ? "" : found->second;
}

std::optional<double> probability_of(const MergedRow& row) {
  const double p = row.number(Metric::bound_by_probability);
  return std::isfinite(p) ? std::optional(p) : std::nullopt;
}

std::string flags_against(std::string_view cause) {
  if (cause == "wire") return "--codec none,bf16,qsgd4 --overlap none,bucketed";
  if (cause == "wait" || cause == "straggle") return "--strategy independent,sync";
  if (cause == "interference") return "--overlap none,bucketed";
  return "--time-budget 60s";
}

void add_lost(const MergedRows& rows, const MergedRow& row, std::vector<Finding>& out) {
  const std::string bound = row.text(Metric::bound_by);
  const Estimate e = efficiency_of(row);
  if (bound == "compute" || !(e.high < lossless_efficiency)) return;
  const Estimate lost{1 - e.value, 1 - e.high, 1 - e.low};
  const auto probability = probability_of(row);
  const std::string sure =
      probability ? fmt::format(" (probability {:.0f} %)", std::min(99.0, 100 * *probability)) : "";
  const std::string_view cause = cause_in_words(bound);
  const std::string why = cause.empty() ? "and what to is undecided: longer runs would decide it"
                                        : fmt::format("mostly to {}{}", cause, sure);
  const auto described = rows.describe({&row}, {});
  Finding f = rows.finding(FindingKind::lost_to, {&row}, {},
                           fmt::format("{}: {} of the speed is lost, {}", described.both(), percent(lost), why));
  f.figures["lost"] = lost;
  f.figures["efficiency"] = e;
  for (const Metric m : {Metric::contention_s, Metric::straggle_s, Metric::interference_s, Metric::wait_s,
                         Metric::wire_s, Metric::other_s}) {
    if (const double s = row.number(m); std::isfinite(s)) f.figures[std::string(core::name(m))].value = s;
  }
  f.probability = probability;
  // A cause is no remedy: findings that show a remedy come first if they win over a quarter of the loss. What a
  // strategy computes besides is part of it.
  f.severity = lost.value / (bound == "other" ? 16 : 4);
  f.next = model_command(row, fmt::format("--batch {} {}", row.whole(Factor::batch_per_rank), flags_against(bound)));
  out.push_back(std::move(f));
}

// --- one setting instead of another

struct Setting {
  Factor factor;
  std::string_view reference;  ///< the value that others are compared with; empty: the slowest
};

/// The factors in which rows of different settings may differ: a vendor's algorithm has no transport of ours and no
/// table.
Axes axes_of(Factor f) {
  return f == Factor::algorithm ? Axes{Factor::algorithm, Factor::transport, Factor::tuned_table} : Axes{f};
}

std::string named(const MergedRows& rows, const MergedRow& row, Factor f) {
  return f == Factor::algorithm ? rows.algorithm(row) : rows.words(row, f);
}

/// ", because the exchange (67 ms) now is over half of the step", if its share grew and is above 10 %; else empty.
std::string because(const MergedRow& a, const MergedRow& b) {
  const auto share = [](const MergedRow& r) { return r.number(Metric::exposed_s) / r.number(Metric::time_s); };
  if (!(share(b) > share(a)) || !(share(b) > 0.1)) return "";
  return fmt::format(", because the exchange ({}) now is {} of the step",
                     core::to_text(core::Seconds{b.number(Metric::exposed_s)}),
                     share(b) > 0.5 ? "over half" : share_in_words(share(b)));
}

std::string accuracy_change(const MergedRow& a, const MergedRow& b, Factor f,
                            std::map<std::string, Estimate>& figures) {
  const double lost = b.number(Metric::accuracy_lost);
  if (std::isfinite(lost)) {
    const Estimate e{lost, b.number(Metric::accuracy_lost_ci95_low), b.number(Metric::accuracy_lost_ci95_high)};
    figures["accuracy_lost"] = e;
    if (!e.has_interval()) return fmt::format(", {:.2f} points of accuracy lost (no interval)", 100 * lost);
    return e.low > 0 ? fmt::format(", and {:.2f} points of accuracy are lost", 100 * lost)
                     : fmt::format(", and no loss of accuracy is shown ({:.2f} points)", 100 * lost);
  }
  if (f != Factor::codec && f != Factor::gradients && f != Factor::strategy) return "";
  const double before = a.number(Metric::accuracy_at_samples), after = b.number(Metric::accuracy_at_samples);
  if (b.point.experiment != "scale") return "";
  if (!std::isfinite(before) || !std::isfinite(after)) return ", accuracy not measured here (`--learn`)";
  const double samples_before = a.number(Metric::learn_samples), samples = b.number(Metric::learn_samples);
  if (!std::isfinite(samples_before) || !std::isfinite(samples))
    return ", accuracies not compared, since it is not known after how many samples they were taken";
  if (samples_before != samples) {
    return fmt::format(", accuracy {:.1f} % after {:.0f} samples and {:.1f} % after {:.0f}, which do not compare",
                       100 * before, samples_before, 100 * after, samples);
  }
  figures["accuracy_before"].value = before;
  figures["accuracy"].value = after;
  return fmt::format(", accuracy {:.1f} → {:.1f} % after as many samples", 100 * before, 100 * after);
}

/// The finding for `b` instead of `a`, which differ in the factor only.
Finding change(const MergedRows& rows, Factor factor, const MergedRow& a, const MergedRow& b) {
  const Axes over = axes_of(factor);
  const Estimate faster = ratio(time_of(a), time_of(b));
  const auto described = rows.describe({&b}, over);
  const Relation relation = compare(time_of(b), time_of(a));
  std::map<std::string, Estimate> figures{{"throughput_ratio", faster}};
  const bool is_step = b.point.experiment == "scale";
  std::string sentence = fmt::format("{} {}", is_step ? "throughput" : "speed", times(faster));
  if (relation == Relation::not_shown) sentence = fmt::format("no difference of {} is shown", sentence);
  if (relation == Relation::unknown) sentence += ", which is not sure without intervals";
  if (has_efficiency(a) && has_efficiency(b)) {
    const Estimate before = efficiency_of(a), after = efficiency_of(b);
    figures["efficiency_before"] = before;
    figures["efficiency"] = after;
    sentence += fmt::format(", efficiency {:.0f} → {:.0f} %", 100 * before.value, 100 * after.value);
    const Relation moved = compare(after, before);
    if (moved == Relation::not_shown) sentence += " (no difference shown)";
    if (moved == Relation::less && relation == Relation::less) sentence += because(a, b);
  }
  sentence += accuracy_change(a, b, factor, figures);
  Finding out = rows.finding(FindingKind::change, {&a, &b}, over,
                             fmt::format("{}: {} instead of {}{}: {}", described.subject, named(rows, b, factor),
                                         named(rows, a, factor), described.rest, sentence));
  out.figures = std::move(figures);
  const bool is_sure = relation == Relation::less || relation == Relation::greater;
  // A change to a slower setting is no remedy, so that it stands behind the changes that are.
  constexpr double no_remedy = 1.0 / 16;
  out.severity = is_sure ? (faster.value > 1 ? 1 - 1 / faster.value : no_remedy * (1 - faster.value)) : 0;
  if (!is_sure) out.next = rows.command_to_repeat(b);
  return out;
}

/// Pairs of each other value with the reference, or of the fastest with each other value.
std::vector<std::pair<const MergedRow*, const MergedRow*>> pairs_of(const Group& group, const Setting& setting) {
  const auto reference = std::ranges::find_if(group, [&](const MergedRow* r) {
    return !setting.reference.empty() && r->text(setting.factor) == setting.reference;
  });
  std::vector<std::pair<const MergedRow*, const MergedRow*>> out;
  const MergedRow* fastest = *std::ranges::min_element(
      group, [](const MergedRow* a, const MergedRow* b) { return time_of(*a).value < time_of(*b).value; });
  for (const MergedRow* row : group) {
    if (reference != group.end()) {
      if (row != *reference) out.emplace_back(*reference, row);
    } else if (row != fastest) {
      out.emplace_back(row, fastest);
    }
  }
  return out;
}

/// Adds one finding for each two values of the factor and each curve over the mini-batch: at the pair of rows that
/// differ most beyond doubt, or at the first pair if none do.
void add_changes(const MergedRows& rows, std::string_view experiment, const Setting& setting,
                 std::vector<Finding>& out) {
  const auto is_used = [&](const MergedRow& r) {
    const bool is_step = r.point.experiment == "scale";
    const bool has_doubt = is_step && (is_implausible(r) || r.text(Factor::strategy) == "independent");
    // One rank exchanges nothing: there strategies differ only in what they compute besides.
    if (setting.factor == Factor::strategy && r.whole(Factor::ranks) == 1) return false;
    return !core::is_null(r.point.factors[setting.factor]) && time_of(r).value > 0 && !has_doubt;
  };
  std::vector<Finding> kept;
  std::unordered_map<std::string, std::size_t> places;  // by curve and values: the index in `kept`
  for (const Group& group : rows.groups(experiment, axes_of(setting.factor), is_used)) {
    for (const auto& [a, b] : pairs_of(group, setting)) {
      core::Factors curve = b->point.factors;
      for (const Factor f : batch_axes) curve[f] = {};
      for (const Factor f : axes_of(setting.factor)) curve[f] = {};
      std::vector<std::string> values{named(rows, *a, setting.factor), named(rows, *b, setting.factor)};
      if (setting.reference.empty()) std::ranges::sort(values);
      const std::string key = fmt::format("{} {} {}|{}", b->origin, curve.key(), core::escaped_key_part(values[0]),
                                          core::escaped_key_part(values[1]));
      Finding found = change(rows, setting.factor, *a, *b);
      const auto [place, is_new] = places.try_emplace(key, kept.size());
      if (is_new) {
        kept.push_back(std::move(found));
      } else if (Finding& kept_one = kept[place->second]; found.severity > kept_one.severity) {
        kept_one = std::move(found);
      }
    }
  }
  std::ranges::move(kept, std::back_inserter(out));
}

}  // namespace

void find_efficiency(const MergedRows& rows, std::vector<Finding>& out) {
  for (Group& curve : rows.groups("scale", batch_axes, is_exchanged)) {
    std::ranges::stable_sort(curve, has_smaller_batch);
    const auto described = rows.describe(curve, batch_axes);
    Finding f = rows.finding(FindingKind::efficiency, curve, batch_axes,
                             fmt::format("{}: {}", described.both(), how_efficient(curve)));
    for (const MergedRow* row : curve) f.figures[fmt::format("efficiency at {}", at_batch(*row))] = efficiency_of(*row);
    out.push_back(std::move(f));
    if (curve.size() > 1) add_small_batch(rows, curve, out);
    for (const MergedRow* row : curve) add_lost(rows, *row, out);
  }
  // Ranks also lose time to each other without any exchange.
  const auto is_apart = [](const MergedRow& r) {
    return r.whole(Factor::ranks) > 1 && r.text(Factor::strategy) == "independent" && has_efficiency(r);
  };
  for (const Group& group : rows.groups("scale", batch_axes, is_apart))
    for (const MergedRow* row : group) add_lost(rows, *row, out);
}

void find_changes(const MergedRows& rows, std::vector<Finding>& out) {
  for (const Setting& s :
       {Setting{Factor::precision, "fp32"}, Setting{Factor::codec, "none"}, Setting{Factor::gradients, "fp32"},
        Setting{Factor::algorithm, ""}, Setting{Factor::overlap, "none"}, Setting{Factor::bucket_bytes, ""},
        Setting{Factor::strategy, "sync"}, Setting{Factor::update, ""}})
    add_changes(rows, "scale", s, out);
  add_changes(rows, "allreduce", {Factor::codec, "none"}, out);
  add_changes(rows, "infer", {Factor::precision, "fp32"}, out);
  add_changes(rows, "kernels", {Factor::precision, "fp32"}, out);
}

}  // namespace gradmeter::analysis::detail
