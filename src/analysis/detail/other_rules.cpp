// Findings about collectives, codecs, kernels, training and replays.
#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/detail/rows.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis::detail {
namespace {

using core::Factor;
using core::Metric;

const Axes algorithm_axes{Factor::algorithm, Factor::transport};

bool is_vendor(const Row& row) {
  static constexpr std::array<std::string_view, 3> vendors{"mpi", "nccl", "gloo"};
  const std::string algorithm = row.text(Factor::algorithm);
  if (algorithm.empty()) return false;
  return std::find(vendors.begin(), vendors.end(), core::name_of(algorithm).base) != vendors.end();
}

std::string algorithm_of(const Rows& rows, const Row& row) {
  const std::string transport = row.text(Factor::transport);
  return rows.words(row, Factor::algorithm) + (transport.empty() ? "" : "/" + transport);
}

bool has_less_time(const Row* a, const Row* b) { return time_of(*a).value < time_of(*b).value; }

std::string to_limit(const Row& row) {
  const double limit = row.number(Metric::limit_s), time = time_of(row).value;
  return limit > 0 ? fmt::format(", {:.{}f} times the limit", time / limit, time < 100 * limit ? 2 : 0) : "";
}

/// Compares the vendors' algorithms with the fastest of all.
std::string against_vendors(const Rows& rows, const Group& group, const Row& best, Finding& f) {
  std::string out;
  for (const Row* row : group) {
    if (row == &best || !is_vendor(*row)) continue;
    const Figure faster = ratio(time_of(*row), time_of(best));
    f.figures["speed_against_" + row->text(Factor::algorithm)] = faster;
    out += fmt::format("; {} takes {}: {}", algorithm_of(rows, *row), seconds(time_of(*row)), times(faster));
  }
  return out;
}

Finding fastest_of(const Rows& rows, const Group& group) {
  const Row& best = **std::min_element(group.begin(), group.end(), has_less_time);
  std::vector<std::string> close;  // not shown to be slower
  double second = 0;
  bool is_known = true;
  for (const Row* row : group) {
    if (row == &best) continue;
    const double slower = 1 - time_of(best).value / time_of(*row).value;
    if (second == 0 || slower < second) second = slower;
    const Relation r = compare(time_of(best), time_of(*row));
    is_known = is_known && r != Relation::unknown;
    if (r != Relation::less) close.push_back(algorithm_of(rows, *row));
  }
  const auto at = rows.where(group, algorithm_axes);
  Finding scratch;
  std::string what;
  if (group.size() == 1) {
    const std::string algorithm = algorithm_of(rows, best);
    what = fmt::format("a call{} takes {}", algorithm.empty() ? "" : " by " + algorithm, seconds(time_of(best)));
  } else if (close.empty()) {
    what = fmt::format("{} is the fastest with {}", algorithm_of(rows, best), seconds(time_of(best)));
  } else {
    constexpr std::size_t most = 3;
    const std::size_t more = close.size() > most ? close.size() - most : 0;
    close.resize(close.size() - more);
    what = fmt::format("{} takes {}, and {}{} {} not shown to be slower{}", algorithm_of(rows, best),
                       seconds(time_of(best)), fmt::join(close, ", "), more ? fmt::format(" and {} more", more) : "",
                       close.size() + more == 1 ? "is" : "are", is_known ? "" : " (without intervals nothing is)");
  }
  what += to_limit(best) + against_vendors(rows, group, best, scratch);
  Finding f =
      rows.finding(FindingKind::fastest_exchange, group, algorithm_axes, fmt::format("{}: {}", at.both(), what));
  f.figures = std::move(scratch.figures);
  f.figures["time_s"] = time_of(best);
  if (group.size() > 1 && close.empty()) {
    f.severity = second;
    for (const Row* row : group)
      if (row != &best && is_vendor(*row))
        f.severity = std::max(f.severity, 1 - time_of(best).value / time_of(*row).value);
    f.figures["size_bytes"].value = static_cast<double>(best.whole(Factor::size_bytes));
  } else if (group.size() > 1) {
    f.next = rows.again(best);
  }
  return f;
}

std::string share_of_roofline(const Rows& rows, const Row& row) {
  const std::string problem = rows.words(row, Factor::problem);
  const std::int64_t batch = row.whole(Factor::batch_per_rank);
  return fmt::format("{} ({}{})", percent(row.number(Metric::roofline)), problem,
                     batch > 0 ? fmt::format(" at batch {}", batch) : "");
}

}  // namespace

void find_fastest_exchange(const Rows& rows, std::vector<Finding>& out) {
  const auto timed = [](const Row& r) { return time_of(r).value > 0; };
  for (const Group& group : rows.groups("allreduce", algorithm_axes, timed)) out.push_back(fastest_of(rows, group));
}

void find_rooflines(const Rows& rows, std::vector<Finding>& out) {
  const Axes over{Factor::problem, Factor::batch_per_rank, Factor::batch_global};
  const auto has_roofline = [](const Row& r) { return r.number(Metric::roofline) > 0; };
  for (const Group& group : rows.groups("kernels", over, has_roofline)) {
    const auto [least, most] = std::minmax_element(group.begin(), group.end(), [](const Row* a, const Row* b) {
      return a->number(Metric::roofline) < b->number(Metric::roofline);
    });
    const bool is_one = percent((*least)->number(Metric::roofline)) == percent((*most)->number(Metric::roofline));
    const auto at = rows.where(group, over);
    const std::string shares =
        group.size() == 1 ? share_of_roofline(rows, **most)
        : is_one          ? percent((*most)->number(Metric::roofline))
                 : fmt::format("from {} to {}", share_of_roofline(rows, **least), share_of_roofline(rows, **most));
    Finding f = rows.finding(FindingKind::roofline, group, over,
                             fmt::format("{}: {} of what the roofline allows", at.both(), shares));
    f.figures["least"].value = (*least)->number(Metric::roofline);
    f.figures["most"].value = (*most)->number(Metric::roofline);
    out.push_back(std::move(f));
  }
}

void find_crossovers(const Rows& rows, std::vector<Finding>& out) {
  const Axes over{Factor::codec};
  const auto has_crossover = [](const Row& r) { return std::isfinite(r.number(Metric::crossover_bytes_per_s)); };
  for (const Group& group : rows.groups("codecs", over, has_crossover)) {
    const Row& best = **std::max_element(group.begin(), group.end(), [](const Row* a, const Row* b) {
      return a->number(Metric::crossover_bytes_per_s) < b->number(Metric::crossover_bytes_per_s);
    });
    const double crossover = best.number(Metric::crossover_bytes_per_s);
    const auto at = rows.where(group, over);
    const std::string what =
        crossover > 0 ? fmt::format(
                            "of {} codec{} {} pays on the fastest links, those below {}; it takes {:.3g} bits an "
                            "element and has an error of {:.2g}",
                            group.size(), group.size() == 1 ? "" : "s", rows.words(best, Factor::codec),
                            core::to_text(core::BytesPerSecond{crossover}), best.number(Metric::wire_bits),
                            best.number(Metric::error))
                      : fmt::format("none of {} codec{} pays on any link", group.size(), group.size() == 1 ? "" : "s");
    Finding f = rows.finding(FindingKind::crossover, group, over, fmt::format("{}: {}", at.both(), what));
    f.figures["crossover_bytes_per_s"].value = crossover;
    out.push_back(std::move(f));
  }
}

void find_accuracy(const Rows& rows, std::vector<Finding>& out) {
  const auto has_accuracy = [](const Row& r) { return std::isfinite(r.number(Metric::accuracy)); };
  for (const Group& group : rows.groups("train", {}, has_accuracy)) {
    const Row& best = **std::max_element(group.begin(), group.end(), [](const Row* a, const Row* b) {
      return a->number(Metric::accuracy) < b->number(Metric::accuracy);
    });
    const auto at = rows.where(group, {});
    Finding f =
        rows.finding(FindingKind::accuracy, group, {},
                     fmt::format("training {}{} reaches an accuracy of {:.1f} % after {:.3g} epochs", at.subject,
                                 at.rest, 100 * best.number(Metric::accuracy), best.number(Metric::epoch)));
    f.figures["accuracy"].value = best.number(Metric::accuracy);
    f.figures["epoch"].value = best.number(Metric::epoch);
    out.push_back(std::move(f));
  }
}

void find_replays(const Rows& rows, std::vector<Finding>& out) {
  const auto is_replayed = [](const Row& r) { return r.number(Metric::baseline_time_s) > 0 && time_of(r).value > 0; };
  for (const Group& group : rows.groups("replay", {}, is_replayed)) {
    const Row& row = *group.front();
    const double base = row.number(Metric::baseline_time_s);
    const Figure longer = ratio(time_of(row), {base, base, base});
    const auto at = rows.where(group, {});
    Finding f = rows.finding(FindingKind::replayed, group, {},
                             fmt::format("{}: a replayed step takes {}, the trace's {}: {}", at.both(),
                                         seconds(time_of(row)), core::to_text(core::Seconds{base}), times(longer)));
    f.figures["time_s"] = time_of(row);
    f.figures["time_ratio"] = longer;
    out.push_back(std::move(f));
  }
}

}  // namespace gradmeter::analysis::detail
