// SPDX-License-Identifier: Apache-2.0
// Findings about collectives, codecs, kernels, training and replays.
#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/findings.hpp"
#include "analysis/sentences/sentences.hpp"
#include "analysis/words.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis::detail {
namespace {

using core::Factor;
using core::Metric;

const Axes algorithm_axes{Factor::algorithm, Factor::transport, Factor::tuned_table};

bool is_vendor(const MergedRow& row) {
  static constexpr std::array<std::string_view, 3> vendors{"mpi", "nccl", "gloo"};
  const std::string algorithm = row.text(Factor::algorithm);
  if (algorithm.empty()) return false;
  return std::ranges::find(vendors, core::parse_name_or_text(algorithm).base) != vendors.end();
}

bool has_less_time(const MergedRow* a, const MergedRow* b) { return time_of(*a).value < time_of(*b).value; }

/// ", 1.20 times the limit": the time, divided by the least time that the link allows; empty if that is not known.
std::string to_limit(const MergedRow& row) {
  const double limit = row.number(Metric::limit_s), time = time_of(row).value;
  return limit > 0 ? fmt::format(", {:.{}f} times the limit", time / limit, time < 100 * limit ? 2 : 0) : "";
}

/// Compares each vendor's algorithm with the fastest algorithm of all. One that is shown to be slower sets the
/// severity, since the fastest can replace it, even if others are as fast.
std::string against_vendors(const MergedRows& rows, const Group& group, const MergedRow& best, Finding& f) {
  std::string out;
  for (const MergedRow* row : group) {
    if (row == &best || !is_vendor(*row)) continue;
    const Estimate faster = ratio(time_of(*row), time_of(best));
    f.figures["speed_against_" + row->text(Factor::algorithm)] = faster;
    if (compare(time_of(best), time_of(*row)) == Relation::less)
      f.severity = std::max(f.severity, 1 - time_of(best).value / time_of(*row).value);
    out += fmt::format("; {} takes {}: {}", rows.algorithm(*row), seconds(time_of(*row)), times(faster));
  }
  return out;
}

Finding fastest_of(const MergedRows& rows, const Group& group) {
  const MergedRow& best = **std::ranges::min_element(group, has_less_time);
  std::vector<std::string> close;  // algorithms not shown to be slower
  double runner_up_lag = 0;
  bool is_known = true;
  for (const MergedRow* row : group) {
    if (row == &best) continue;
    const double slower = 1 - time_of(best).value / time_of(*row).value;
    if (runner_up_lag == 0 || slower < runner_up_lag) runner_up_lag = slower;
    const Relation r = compare(time_of(best), time_of(*row));
    is_known = is_known && r != Relation::unknown;
    if (r != Relation::less) close.push_back(rows.algorithm(*row));
  }
  const auto described = rows.describe(group, algorithm_axes);
  Finding scratch;
  std::string sentence;
  if (group.size() == 1) {
    const std::string algorithm = rows.algorithm(best);
    sentence = fmt::format("a call{} takes {}", algorithm.empty() ? "" : " by " + algorithm, seconds(time_of(best)));
  } else if (close.empty()) {
    sentence = fmt::format("{} is the fastest with {}", rows.algorithm(best), seconds(time_of(best)));
  } else {
    constexpr std::size_t most_named = 3;
    const std::size_t more = close.size() > most_named ? close.size() - most_named : 0;
    close.resize(close.size() - more);
    sentence =
        fmt::format("{} takes {}, and {}{} {} not shown to be slower{}", rows.algorithm(best), seconds(time_of(best)),
                    fmt::join(close, ", "), more ? fmt::format(" and {} more", more) : "",
                    close.size() + more == 1 ? "is" : "are", is_known ? "" : " (without intervals nothing is)");
  }
  sentence += to_limit(best) + against_vendors(rows, group, best, scratch);
  Finding f = rows.finding(FindingKind::fastest_exchange, group, algorithm_axes,
                           fmt::format("{}: {}", described.both(), sentence));
  f.figures = std::move(scratch.figures);
  f.severity = scratch.severity;
  f.figures["time_s"] = time_of(best);
  if (group.size() > 1 && close.empty()) {
    f.severity = std::max(f.severity, runner_up_lag);
    f.figures["size_bytes"].value = static_cast<double>(best.whole(Factor::size_bytes));
  } else if (group.size() > 1) {
    f.next = rows.command_to_repeat(best);
  }
  return f;
}

std::string share_of_roofline(const MergedRows& rows, const MergedRow& row) {
  const std::string problem = rows.words(row, Factor::problem);
  const std::int64_t batch = row.whole(Factor::batch_per_rank);
  return fmt::format("{} ({}{})", percent(row.number(Metric::roofline)), problem,
                     batch > 0 ? fmt::format(" at batch {}", batch) : "");
}

}  // namespace

void find_fastest_exchange(const MergedRows& rows, std::vector<Finding>& out) {
  const auto timed = [](const MergedRow& r) { return time_of(r).value > 0; };
  for (const Group& group : rows.groups("allreduce", algorithm_axes, timed)) out.push_back(fastest_of(rows, group));
}

void find_rooflines(const MergedRows& rows, std::vector<Finding>& out) {
  const Axes over{Factor::problem, Factor::batch_per_rank, Factor::batch_global};
  const auto has_roofline = [](const MergedRow& r) { return r.number(Metric::roofline) > 0; };
  for (const Group& group : rows.groups("kernels", over, has_roofline)) {
    const auto [least, most] = std::ranges::minmax_element(group, [](const MergedRow* a, const MergedRow* b) {
      return a->number(Metric::roofline) < b->number(Metric::roofline);
    });
    const bool is_same_text = percent((*least)->number(Metric::roofline)) == percent((*most)->number(Metric::roofline));
    const auto described = rows.describe(group, over);
    const std::string shares = group.size() == 1 ? share_of_roofline(rows, **most)
                               : is_same_text    ? percent((*most)->number(Metric::roofline))
                                                 : fmt::format("from {} to {}", share_of_roofline(rows, **least),
                                                               share_of_roofline(rows, **most));
    Finding f = rows.finding(FindingKind::roofline, group, over,
                             fmt::format("{}: {} of what the roofline allows", described.both(), shares));
    f.figures["least"].value = (*least)->number(Metric::roofline);
    f.figures["most"].value = (*most)->number(Metric::roofline);
    out.push_back(std::move(f));
  }
}

namespace {

/// The rate of a link below which the codec pays, with the interval that the intervals of the three times allow.
Estimate crossover_of(const core::Point& p) {
  const double middle = p.metrics.number(Metric::crossover_bytes_per_s);
  Estimate out{middle, middle, middle};
  for (const Metric m : {Metric::encode_s, Metric::decode_add_s, Metric::decode_s}) {
    const auto* time = p.metrics[m].as<core::Summary>();
    if (!time || !std::isfinite(time->ci95_low)) return {.value = middle};
    out.low = std::min(out.low, middle * time->median / time->ci95_high);
    out.high = std::max(out.high, middle * time->median / time->ci95_low);
  }
  return out;
}

bool has_less_crossover(const MergedRow* a, const MergedRow* b) {
  return a->number(Metric::crossover_bytes_per_s) < b->number(Metric::crossover_bytes_per_s);
}

/// Says which of the group's codecs pays on the fastest links. One is named only where it is shown to be ahead of all.
std::string crossovers_in_words(const MergedRows& rows, Group group) {
  const std::string codecs = fmt::format("the {} codec{} that a reduce-scatter and an all-gather can exchange",
                                         group.size(), group.size() == 1 ? "" : "s");
  std::ranges::stable_sort(group, [](const MergedRow* a, const MergedRow* b) { return has_less_crossover(b, a); });
  const MergedRow& best = *group.front();
  const Estimate crossover = crossover_of(best.point);
  if (!(crossover.value > 0)) return fmt::format("none of {} pays on any link", codecs);
  for (const MergedRow* other : group) {
    const Estimate others = crossover_of(other->point);
    const Relation r = compare(others, crossover);
    // A codec that saves no bits pays nowhere, whatever its times.
    if (other == &best || others.value == 0 || r == Relation::less) continue;
    return fmt::format(
        "of {} no difference is shown between {}, which pays on links below {:.3g} Gbit/s, and {}, below "
        "{:.3g} Gbit/s{}",
        codecs, rows.words(best, Factor::codec), 8e-9 * crossover.value, rows.words(*other, Factor::codec),
        8e-9 * others.value, r == Relation::unknown ? " (without intervals nothing is)" : "");
  }
  return fmt::format(
      "of {} {} pays on the fastest links, those below {:.3g} Gbit/s; it takes {:.3g} bits an element and has an error "
      "of {:.2g}",
      codecs, rows.words(best, Factor::codec), 8e-9 * crossover.value, best.number(Metric::wire_bits),
      best.number(Metric::error));
}

}  // namespace

void find_crossovers(const MergedRows& rows, std::vector<Finding>& out) {
  const Axes over{Factor::codec};
  const auto has_crossover = [](const MergedRow& r) { return std::isfinite(r.number(Metric::crossover_bytes_per_s)); };
  for (const Group& group : rows.groups("codecs", over, has_crossover)) {
    const auto described = rows.describe(group, over);
    Finding f = rows.finding(FindingKind::crossover, group, over,
                             fmt::format("{}: {}", described.both(), crossovers_in_words(rows, group)));
    f.figures["crossover_bytes_per_s"] = crossover_of((*std::ranges::max_element(group, has_less_crossover))->point);
    out.push_back(std::move(f));
  }
}

void find_accuracy(const MergedRows& rows, std::vector<Finding>& out) {
  const auto has_accuracy = [](const MergedRow& r) { return std::isfinite(r.number(Metric::accuracy)); };
  for (const Group& group : rows.groups("train", {}, has_accuracy)) {
    const MergedRow& best = **std::ranges::max_element(group, [](const MergedRow* a, const MergedRow* b) {
      return a->number(Metric::accuracy) < b->number(Metric::accuracy);
    });
    const auto described = rows.describe(group, {});
    Finding f = rows.finding(FindingKind::accuracy, group, {},
                             fmt::format("training {}{} reaches an accuracy of {:.1f} % after {:.3g} epoch{}",
                                         described.subject, described.rest, 100 * best.number(Metric::accuracy),
                                         best.number(Metric::epoch), best.number(Metric::epoch) == 1 ? "" : "s"));
    f.figures["accuracy"].value = best.number(Metric::accuracy);
    f.figures["epoch"].value = best.number(Metric::epoch);
    out.push_back(std::move(f));
  }
}

void find_replays(const MergedRows& rows, std::vector<Finding>& out) {
  const auto is_replayed = [](const MergedRow& r) {
    return r.number(Metric::baseline_time_s) > 0 && time_of(r).value > 0;
  };
  for (const Group& group : rows.groups("replay", {}, is_replayed)) {
    const MergedRow& row = *group.front();
    const double base = row.number(Metric::baseline_time_s);
    const Estimate longer = ratio(time_of(row), {base, base, base});
    const auto described = rows.describe(group, {});
    Finding f = rows.finding(FindingKind::replayed, group, {},
                             fmt::format("{}: a replayed step takes {}, the trace's {}: {}", described.both(),
                                         seconds(time_of(row)), core::to_text(core::Seconds{base}), times(longer)));
    f.figures["time_s"] = time_of(row);
    f.figures["time_ratio"] = longer;
    out.push_back(std::move(f));
  }
}

}  // namespace gradmeter::analysis::detail

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// The exchange without a codec with which codecs are compared, from the problem "parts=4,ranks=8,baseline=fp32".
struct DenseExchange {
  std::string precision, ranks;
  double bits = 32;  ///< bits of an element
};
DenseExchange dense_exchange(const Point& p) {
  auto parameters = core::parse_name("exchange:" + core::to_text(p.factors[Factor::problem])).parameters;
  return {parameters["baseline"], parameters["ranks"], parameters["baseline"] == "bf16" ? 16.0 : 32.0};
}

struct CodecGain {
  const Point* point;
  Estimate faster;  ///< how many times as fast as the dense exchange
};

CodecGain gain_on(const Point& p, double link) {
  const double dense = dense_exchange(p).bits, wire = p.metrics.number(Metric::wire_bits);
  const auto speedup_at = [&](double crossover) {
    return crossover > 0 ? dense / (wire + (dense - wire) * link / crossover) : NAN;
  };
  const Estimate crossover = detail::crossover_of(p);
  return {&p, {speedup_at(crossover.value), speedup_at(crossover.low), speedup_at(crossover.high)}};
}

std::string link_text(core::BytesPerSecond link) { return fmt::format("{:.3g} Gbit/s", link.value * 8e-9); }

bool is_measured_codec(const Point& p) { return p.experiment == "codecs" && p.status == core::Status::ok; }
bool has_crossover(const Point& p) {
  return is_measured_codec(p) && std::isfinite(p.metrics.number(Metric::crossover_bytes_per_s));
}

bool pays(const CodecGain& g) { return g.faster.low > 1; }

/// "× 2.10 (1.90–2.30) with 8-bit gradients, ...: most is won with 8-bit gradients". The largest gain is the first one.
std::string gains_in_words(const std::vector<CodecGain>& gains, const std::vector<core::Value>& names) {
  constexpr std::size_t most_named = 4;
  const auto name_of = [&](const CodecGain& g) {
    return in_words(Factor::codec, g.point->factors[Factor::codec], names);
  };
  std::vector<std::string> phrases;
  for (const CodecGain& g : std::span(gains).first(std::min(most_named, gains.size())))
    phrases.push_back(std::isnan(g.faster.value) ? fmt::format("{} saves no bits", name_of(g))
                                                 : fmt::format("{} with {}", detail::times(g.faster), name_of(g)));
  const Estimate& best = gains.front().faster;
  const bool is_best_shown = gains.size() == 1 || std::isnan(gains[1].faster.value) || best.low > gains[1].faster.high;
  const std::string answer =
      std::ranges::none_of(gains, pays) ? "none is shown to pay"
      : is_best_shown                   ? fmt::format("most is won with {}", name_of(gains[0]))
                      : fmt::format("no difference is shown between {} and {}", name_of(gains[0]), name_of(gains[1]));
  return fmt::format("{}: {}", fmt::join(phrases, ", "), answer);
}

/// " (gaussian)": the gradients of the point, where others of the same size were measured too; otherwise empty.
std::string distribution_of(const Point& p, std::span<const Point> points) {
  const auto& distribution = p.factors[Factor::distribution];
  const bool is_only = std::ranges::none_of(points, [&](const Point& other) {
    return has_crossover(other) && other.factors[Factor::size_bytes] == p.factors[Factor::size_bytes] &&
           core::to_text(other.factors[Factor::distribution]) != core::to_text(distribution);
  });
  return is_only ? "" : fmt::format(" ({})", core::to_text(distribution));
}

/// The codec as a command takes it, with its parameters.
std::string codec_name(const Point& p) {
  const auto& label = p.metrics[Metric::implementation];
  return core::to_text(core::is_null(label) ? p.factors[Factor::codec] : label);
}

}  // namespace

std::optional<Finding> codecs_on_link(std::span<const Point> points, core::BytesPerSecond link) {
  const auto size = [](const Point& p) { return p.factors[Factor::size_bytes].get<std::int64_t>(); };
  const Point* largest = nullptr;
  for (const Point& p : points)
    if (has_crossover(p) && (!largest || size(p) > size(*largest))) largest = &p;
  Finding finding{.kind = FindingKind::crossover, .experiment = "codecs", .over = {Factor::codec}};
  if (!largest) {
    if (std::ranges::none_of(points, is_measured_codec)) return std::nullopt;
    finding.sentence = fmt::format(
        "Nothing can be said about a link of {}: what a codec wins there is known only for an exchange by a "
        "reduce-scatter and an all-gather, and none of these codecs is exchanged so. Measure them by gradmeter scale "
        "--codec.",
        link_text(link));
    return finding;
  }
  finding.factors = largest->factors;
  finding.factors[Factor::codec] = {};
  std::vector<CodecGain> gains;
  std::vector<core::Value> names;
  for (std::size_t i = 0; i < points.size(); ++i) {
    core::Factors others = points[i].factors;
    others[Factor::codec] = {};
    if (!has_crossover(points[i]) || others.key() != finding.factors.key()) continue;
    gains.push_back(gain_on(points[i], link.value));
    names.push_back(points[i].factors[Factor::codec]);
    finding.rows.push_back({0, i});
    finding.figures["speed_with_" + core::to_text(names.back())] = gains.back().faster;
  }
  // Codecs that save no bits come last.
  std::ranges::stable_sort(gains, [](const CodecGain& a, const CodecGain& b) {
    return std::isnan(b.faster.value) ? !std::isnan(a.faster.value) : a.faster.value > b.faster.value;
  });
  const DenseExchange dense = dense_exchange(*largest);
  finding.sentence = fmt::format(
      "On a link of {} the speed of an exchange of {}{} between {} ranks is, against the dense one in {}, {}. Accuracy "
      "is not measured here.",
      link_text(link), in_words(Factor::size_bytes, largest->factors[Factor::size_bytes]),
      distribution_of(*largest, points), dense.ranks, dense.precision, gains_in_words(gains, names));
  const CodecGain& best = gains.front();
  finding.severity = best.faster.low > 1 ? 1 - 1 / best.faster.value : 0;
  if (std::ranges::any_of(gains, pays))
    finding.next =
        fmt::format("gradmeter scale --codec none,{} --learn 20000 --thread-ranks 2", codec_name(*best.point));
  return finding;
}

}  // namespace gradmeter::analysis
