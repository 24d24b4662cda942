// Findings about the efficiency of a step, what it is lost to, and what one setting changes against another.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>

#include "analysis/detail/rows.hpp"
#include "core/format.hpp"
#include "core/quoting.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis::detail {
namespace {

using core::Factor;
using core::Metric;

const Axes batch_axes{Factor::batch_per_rank, Factor::batch_global};

/// The axis of a curve at constant ranks: batches per rank.
bool has_smaller_batch(const Row* a, const Row* b) {
  return a->whole(Factor::batch_per_rank) < b->whole(Factor::batch_per_rank);
}
std::string at_batch(const Row& row) { return fmt::format("batch {}", row.whole(Factor::batch_per_rank)); }

bool is_exchanged(const Row& row) {
  return row.whole(Factor::ranks) > 1 && row.text(Factor::strategy) != "independent" && has_efficiency(row);
}

std::string model_command(const Row& row, const std::string& flags) {
  std::string out =
      fmt::format("gradmeter scale --model {} --ranks {}", row.text(Factor::model), row.whole(Factor::ranks));
  if (const auto precision = row.text(Factor::precision); !precision.empty() && precision != "fp32")
    out += " --precision " + precision;
  return fmt::format("{} {}", out, flags);
}

// --- efficiency over the mini-batch

/// Finds the two rows that are furthest apart among those whose intervals do not overlap; both null where all overlap.
struct Extremes {
  const Row *low = nullptr, *high = nullptr;
};
Extremes extremes(const Group& curve) {
  // By lower end, with the most efficient of those up to it: a curve of thousands of batches takes no square of them.
  struct Candidate {
    double low;
    std::size_t best;
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
  Extremes out;
  double most = 0;
  for (const Row* row : curve) {
    const Figure e = efficiency_of(*row);
    const auto end = std::ranges::partition_point(candidates, [&](const Candidate& c) { return c.low > e.high; });
    if (end == candidates.begin()) continue;
    const std::size_t best = std::prev(end)->best;
    if (value_of(best) - e.value <= most) continue;
    most = value_of(best) - e.value;
    out = {row, curve[best]};
  }
  return out;
}

/// Between some two rows efficiency surely moves that way as the mini-batch grows.
bool moves(const Group& curve, Relation way) {
  Figure before{.low = -std::numeric_limits<double>::infinity(), .high = std::numeric_limits<double>::infinity()};
  for (const Row* row : curve) {
    const Figure e = efficiency_of(*row);
    if (way == Relation::less ? before.high < e.low : before.low > e.high) return true;
    before.low = std::max(before.low, e.low);
    before.high = std::min(before.high, e.high);
  }
  return false;
}

std::string how_efficient(const Group& curve) {
  if (curve.size() == 1)
    return fmt::format("efficiency is {} at {}", percent(efficiency_of(*curve[0])), at_batch(*curve[0]));
  const Extremes e = extremes(curve);
  if (!e.low) {
    const auto [least, most] = std::minmax_element(curve.begin(), curve.end(), [](const Row* a, const Row* b) {
      return efficiency_of(*a).value < efficiency_of(*b).value;
    });
    return fmt::format("no difference of efficiency is shown between {} and {}: it is {} at {} and {} at {}",
                       at_batch(*curve.front()), at_batch(*curve.back()), percent(efficiency_of(**least)),
                       at_batch(**least), percent(efficiency_of(**most)), at_batch(**most));
  }
  const bool rises = has_smaller_batch(e.low, e.high);
  const Row *from = rises ? e.low : e.high, *to = rises ? e.high : e.low;
  if (moves(curve, Relation::less) && moves(curve, Relation::greater)) {
    return fmt::format("efficiency is lowest with {} at {}, highest with {} at {}", percent(efficiency_of(*e.low)),
                       at_batch(*e.low), percent(efficiency_of(*e.high)), at_batch(*e.high));
  }
  return fmt::format("efficiency {} from {} at {} to {} at {}", rises ? "rises" : "falls",
                     percent(efficiency_of(*from)), at_batch(*from), percent(efficiency_of(*to)), at_batch(*to));
}

void add_small_batch(const Rows& rows, const Group& curve, std::vector<Finding>& out) {
  constexpr double much = 1.25;
  const Row* small = curve.front();
  const Figure low = efficiency_of(*small);
  const Row* enough = nullptr;  // the best of those that are surely better
  for (const Row* row : curve) {
    const Figure e = efficiency_of(*row);
    if (compare(low, e) == Relation::less && e.value >= much * low.value &&
        (!enough || e.value > efficiency_of(*enough).value))
      enough = row;
  }
  if (!enough) return;
  const Figure high = efficiency_of(*enough);
  const auto at = rows.where({small, enough}, batch_axes);
  Finding f = rows.finding(FindingKind::small_batch, {small, enough}, batch_axes,
                           fmt::format("{}: {} is small: efficiency is {}, and {} at {}", at.both(), at_batch(*small),
                                       percent(low), percent(high), at_batch(*enough)));
  f.figures["batch"].value = static_cast<double>(small->whole(Factor::batch_per_rank));
  f.figures["batch_larger"].value = static_cast<double>(enough->whole(Factor::batch_per_rank));
  f.figures["efficiency"] = low;
  f.figures["efficiency_larger"] = high;
  // A mini-batch also changes what is learnt, so another setting that wins as much comes first.
  constexpr double weight = 0.75;
  f.severity = weight * (1 - low.value / high.value);
  f.next = model_command(*small, fmt::format("--batch {}", enough->whole(Factor::batch_per_rank)));
  out.push_back(std::move(f));
}

// --- lost time

struct Cause {
  std::string_view name, words;
};
constexpr std::array causes{Cause{"memory", "ranks that slow each other down without any exchange"},
                            Cause{"cores", "ranks that share cores"},
                            Cause{"straggle", "a rank that computes longer than the others"},
                            Cause{"interference", "kernels that the exchange makes slower"},
                            Cause{"wait", "waiting for ranks that come late"},
                            Cause{"wire", "waiting for the wire"},
                            Cause{"other", "updates, copies and bookkeeping"}};

std::optional<double> probability_of(const Row& row) {
  const double p = row.number(Metric::bound_by_probability);
  return std::isfinite(p) ? std::optional(p) : std::nullopt;
}

std::string flags_against(std::string_view cause) {
  if (cause == "wire") return "--codec none,bf16,qsgd4 --overlap none,bucketed";
  if (cause == "wait" || cause == "straggle") return "--strategy independent,sync";
  if (cause == "interference") return "--overlap none,bucketed";
  return "--time-budget 60s";
}

void add_lost(const Rows& rows, const Row& row, std::vector<Finding>& out) {
  constexpr double surely_lost = 0.97;
  const std::string bound = row.text(Metric::bound_by);
  const Figure e = efficiency_of(row);
  if (bound == "compute" || !(e.high < surely_lost)) return;
  const Figure lost{1 - e.value, 1 - e.high, 1 - e.low};
  const auto probability = probability_of(row);
  const std::string sure = probability ? fmt::format(" ({:.0f} %)", 100 * *probability) : "";
  const auto cause = std::find_if(causes.begin(), causes.end(), [&](const Cause& c) { return c.name == bound; });
  const std::string why = cause != causes.end() ? fmt::format("mostly to {}{}", cause->words, sure)
                                                : "and what to is undecided: longer runs would decide it";
  const auto at = rows.where({&row}, {});
  Finding f = rows.finding(FindingKind::lost_to, {&row}, {},
                           fmt::format("{}: {} of the speed is lost, {}", at.both(), percent(lost), why));
  f.figures["lost"] = lost;
  f.figures["efficiency"] = e;
  for (const Metric m : {Metric::contention_s, Metric::straggle_s, Metric::interference_s, Metric::wait_s,
                         Metric::wire_s, Metric::other_s}) {
    if (const double s = row.number(m); std::isfinite(s)) f.figures[std::string(core::name(m))].value = s;
  }
  f.probability = probability;
  // A cause is no remedy: findings that show one come first where they win over a quarter of the loss.
  f.severity = lost.value / 4;
  f.next = model_command(row, fmt::format("--batch {} {}", row.whole(Factor::batch_per_rank), flags_against(bound)));
  out.push_back(std::move(f));
}

// --- one setting instead of another

struct Setting {
  Factor factor;
  std::string_view reference;  ///< what others are held against; empty: the slowest
};

/// What may differ beside the factor: a vendor's algorithm has no transport of ours.
Axes axes_of(Factor f) { return f == Factor::algorithm ? Axes{Factor::algorithm, Factor::transport} : Axes{f}; }

std::string named(const Rows& rows, const Row& row, Factor f) {
  if (f == Factor::algorithm) {
    const std::string transport = row.text(Factor::transport);
    return rows.words(row, f) + (transport.empty() ? "" : "/" + transport);
  }
  return rows.words(row, f);
}

/// "because the exchange (67 ms) now is over half of the step", where it is what grew.
std::string because(const Row& a, const Row& b) {
  const auto share = [](const Row& r) { return r.number(Metric::exposed_s) / r.number(Metric::time_s); };
  if (!(share(b) > share(a)) || !(share(b) > 0.1)) return "";
  return fmt::format(", because the exchange ({}) now is {} of the step",
                     core::to_text(core::Seconds{b.number(Metric::exposed_s)}),
                     share(b) > 0.5 ? "over half" : share_in_words(share(b)));
}

std::string accuracy_change(const Row& a, const Row& b, Factor f, std::map<std::string, Figure>& figures) {
  const double lost = b.number(Metric::accuracy_lost);
  if (std::isfinite(lost)) {
    figures["accuracy_lost"] = {lost, b.number(Metric::accuracy_lost_ci95_low),
                                b.number(Metric::accuracy_lost_ci95_high)};
    return fmt::format(", and {:.2f} % of accuracy is lost", 100 * lost);
  }
  if (f != Factor::codec && f != Factor::gradients && f != Factor::strategy) return "";
  const double before = a.number(Metric::accuracy_at_samples), after = b.number(Metric::accuracy_at_samples);
  if (b.point.experiment != "scale") return "";
  if (!std::isfinite(before) || !std::isfinite(after)) return ", accuracy not measured here (`--learn`)";
  figures["accuracy_before"].value = before;
  figures["accuracy"].value = after;
  return fmt::format(", accuracy {:.1f} → {:.1f} % after as many samples", 100 * before, 100 * after);
}

/// `b` instead of `a`, which differ in the factor only.
Finding change(const Rows& rows, Factor f, const Row& a, const Row& b) {
  const Axes over = axes_of(f);
  const Figure faster = ratio(time_of(a), time_of(b));
  const auto at = rows.where({&b}, over);
  const Relation relation = compare(time_of(b), time_of(a));
  std::map<std::string, Figure> figures{{"throughput_ratio", faster}};
  const bool is_step = b.point.experiment == "scale";
  std::string what = fmt::format("{} {}", is_step ? "throughput" : "speed", times(faster));
  if (relation == Relation::not_shown) what = fmt::format("no difference of {} is shown", what);
  if (relation == Relation::unknown) what += ", which is not sure without intervals";
  if (has_efficiency(a) && has_efficiency(b)) {
    const Figure before = efficiency_of(a), after = efficiency_of(b);
    figures["efficiency_before"] = before;
    figures["efficiency"] = after;
    what += fmt::format(", efficiency {:.0f} → {:.0f} %", 100 * before.value, 100 * after.value);
    const Relation moved = compare(after, before);
    if (moved == Relation::not_shown) what += " (no difference shown)";
    if (moved == Relation::less && relation == Relation::less) what += because(a, b);
  }
  what += accuracy_change(a, b, f, figures);
  Finding out = rows.finding(
      FindingKind::change, {&a, &b}, over,
      fmt::format("{}: {} instead of {}{}: {}", at.subject, named(rows, b, f), named(rows, a, f), at.rest, what));
  out.figures = std::move(figures);
  const bool is_sure = relation == Relation::less || relation == Relation::greater;
  out.severity = is_sure ? 1 - std::min(faster.value, 1 / faster.value) : 0;
  if (!is_sure) out.next = rows.again(b);
  return out;
}

/// Each other value against the reference, or the fastest against each other.
std::vector<std::pair<const Row*, const Row*>> pairs_of(const Group& group, const Setting& setting) {
  const auto reference = std::find_if(group.begin(), group.end(), [&](const Row* r) {
    return !setting.reference.empty() && r->text(setting.factor) == setting.reference;
  });
  std::vector<std::pair<const Row*, const Row*>> out;
  const Row* fastest = *std::min_element(
      group.begin(), group.end(), [](const Row* a, const Row* b) { return time_of(*a).value < time_of(*b).value; });
  for (const Row* row : group) {
    if (reference != group.end()) {
      if (row != *reference) out.emplace_back(*reference, row);
    } else if (row != fastest) {
      out.emplace_back(row, fastest);
    }
  }
  return out;
}

/// One finding for two values of the factor and each curve over the mini-batch: where they differ most, of those that
/// surely differ; else of all.
void add_changes(const Rows& rows, std::string_view experiment, const Setting& setting, std::vector<Finding>& out) {
  const auto is_used = [&](const Row& r) {
    const bool is_step = r.point.experiment == "scale";
    const bool has_doubt = is_step && (is_implausible(r) || r.text(Factor::strategy) == "independent");
    return !core::is_null(r.point.factors[setting.factor]) && time_of(r).value > 0 && !has_doubt;
  };
  std::vector<Finding> kept;
  std::unordered_map<std::string, std::size_t> places;  // of curves and values in `kept`
  for (const Group& group : rows.groups(experiment, axes_of(setting.factor), is_used)) {
    for (const auto& [a, b] : pairs_of(group, setting)) {
      core::Factors curve = b->point.factors;
      for (const Factor f : batch_axes) curve[f] = {};
      for (const Factor f : axes_of(setting.factor)) curve[f] = {};
      std::vector<std::string> values{named(rows, *a, setting.factor), named(rows, *b, setting.factor)};
      if (setting.reference.empty()) std::sort(values.begin(), values.end());
      const std::string key =
          fmt::format("{} {} {}|{}", b->origin, curve.key(), core::key_part(values[0]), core::key_part(values[1]));
      Finding found = change(rows, setting.factor, *a, *b);
      const auto [place, is_new] = places.try_emplace(key, kept.size());
      if (is_new) {
        kept.push_back(std::move(found));
      } else if (Finding& had = kept[place->second]; found.severity > had.severity) {
        had = std::move(found);
      }
    }
  }
  std::ranges::move(kept, std::back_inserter(out));
}

}  // namespace

void find_efficiency(const Rows& rows, std::vector<Finding>& out) {
  for (Group& curve : rows.groups("scale", batch_axes, is_exchanged)) {
    std::stable_sort(curve.begin(), curve.end(), has_smaller_batch);
    const auto at = rows.where(curve, batch_axes);
    Finding f = rows.finding(FindingKind::efficiency, curve, batch_axes,
                             fmt::format("{}: {}", at.both(), how_efficient(curve)));
    for (const Row* row : curve) f.figures[fmt::format("efficiency at {}", at_batch(*row))] = efficiency_of(*row);
    out.push_back(std::move(f));
    if (curve.size() > 1) add_small_batch(rows, curve, out);
    for (const Row* row : curve) add_lost(rows, *row, out);
  }
  // Ranks lose time to each other without any exchange too.
  const auto is_apart = [](const Row& r) {
    return r.whole(Factor::ranks) > 1 && r.text(Factor::strategy) == "independent" && has_efficiency(r);
  };
  for (const Group& group : rows.groups("scale", batch_axes, is_apart))
    for (const Row* row : group) add_lost(rows, *row, out);
}

void find_changes(const Rows& rows, std::vector<Finding>& out) {
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
