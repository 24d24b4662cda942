// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/row.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/scale/causes.hpp"
#include "core/format.hpp"
#include "core/result.hpp"
#include "kernels/host/library.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

bool communicates(const ScalePoint& p) { return p.strategy->communicates() && p.ranks > 1; }

/// The median of a part over the blocks.
double median_of(const Measurement& m, double StepParts::*part) {
  std::vector<double> values;
  for (const auto& b : m.blocks) values.push_back(b.parts.*part);
  return values.empty() ? 0 : core::median(values);
}

void fill_times(const PointResults& results, Point& row) {
  auto& m = row.metrics;
  const auto samples = results.measurement.times.samples();
  row.raw_times_s.assign(samples.begin(), samples.end());
  core::Summary time = core::summarise(results.measurement.times);
  time.stop = results.measurement.stop;
  m[Metric::time_s] = time;
  m[Metric::compute_s] = median_of(results.measurement, &StepParts::compute);
  m[Metric::samples_per_s] = static_cast<double>(results.point.batch_global) / time.median;
  m[Metric::time_per_sample_s] = time.median / static_cast<double>(results.point.batch_global);
  m[Metric::flops_per_s] = results.training.model().step_flops(results.point.batch_per_rank) / time.median;
  m[Metric::warmup_s] = results.measurement.warmup_s;
  m[Metric::warmup_samples] = static_cast<std::int64_t>(results.measurement.warmup_samples);
  fill_blocks(results.used_blocks, m);
  m[Metric::progress_threads] = static_cast<std::int64_t>(results.training.has_progress_thread());
  m[Metric::oversubscribed] = results.oversubscribed;
  if (const auto bytes = results.training.chosen_bucket())
    m[Metric::bucket_chosen_bytes] = static_cast<std::int64_t>(*bytes);
  if (const auto& ends = results.training.chosen_ends(); !ends.empty())
    m[Metric::bucket_chosen_ends] = fmt::format("{}", fmt::join(ends, ","));
  if (!communicates(results.point)) return;
  m[Metric::comm_s] = median_of(results.measurement, &StepParts::communication);
  m[Metric::exposed_union_s] = median_of(results.measurement, &StepParts::exposed);
  m[Metric::overlap_s] = median_of(results.measurement, &StepParts::overlap);
  if (results.point.codec) {
    m[Metric::encode_s] = median_of(results.measurement, &StepParts::encode);
    m[Metric::decode_s] = median_of(results.measurement, &StepParts::decode);
  }
  if (results.error) m[Metric::error] = *results.error;
}

void fill_bytes(const PointResults& results, Point& row) {
  if (!communicates(results.point)) return;
  fill_totals(results.totals, row);
  if (results.measurement.bytes_right || row.status == core::Status::wrong) return;
  row.status = core::Status::wrong;
  row.reason = "bytes sent differ from the schedule's messages";
}

std::string remark(const PointResults& results) {
  std::string how = kernels::how_multiplied(results.point.precision), note = results.training.model().note();
  return how.empty() || note.empty() ? how + note : fmt::format("{}; {}", how, note);
}

}  // namespace

void fill_row(const PointResults& results, Point& row) {
  if (results.measurement.blocks.empty()) {
    if (row.status == core::Status::wrong) return;  // a check has failed, which explains more
    row.status = core::Status::failed;
    row.reason = "no iteration met its window; use another cadence";
    return;
  }
  if (row.status == core::Status::ok) row.reason = remark(results);
  fill_times(results, row);
  fill_bytes(results, row);
  fill_waits(results.steps, row.metrics);
  fill_loss_scale(results.totals.loss_scale, row.metrics);
  fill_observations(results.totals.observed, results.totals.seconds, row.metrics);
  fill_noise(results.machine_noise, row);
  fill_bound(results.bound, row);
}

namespace {

/// True for `independent` on one rank, with which all other points are compared.
bool is_baseline(const ScalePoint& p) { return p.ranks == 1 && !p.strategy->communicates(); }

double rate_of_a_rank(const Point& p) {
  return p.metrics.number(Metric::samples_per_s) / static_cast<double>(p.factors[Factor::ranks].get<std::int64_t>());
}

void fill_baseline(const Point& base, core::Metrics& m) {
  m[Metric::baseline_time_s] = base.metrics.number(Metric::time_s);
  m[Metric::baseline_ranks] = std::int64_t{1};
  m[Metric::baseline_batch] = base.factors[Factor::batch_per_rank];
}

void add_reason(Point& row, const std::string& text) { row.reason += (row.reason.empty() ? "" : "; ") + text; }

/// Mistrusts an efficiency that is impossible where each rank does what one alone does. ci95: its interval; without
/// one, only values above `plausible` are mistrusted.
void doubt_gain(const ScalePoint& p, double efficiency, std::optional<Estimate::Interval> ci95, Point& row) {
  // On one rank nothing is exchanged: strategies differ only in the order of updates, which may well make one faster.
  const bool comparable = p.ranks > 1 && !p.strategy->info().computes_other_work && row.status == core::Status::ok;
  constexpr double plausible = 1.05;
  if (!comparable || !(ci95 ? ci95->low > 1 : efficiency > plausible)) return;
  const bool is_strong = p.scaling == Scaling::strong;
  if (is_strong || p.mesh.replica_ranks() > 1) {
    if (ci95)
      add_reason(row, fmt::format("above 100 %: a rank's part of the {} fits its caches better than the whole",
                                  is_strong ? "batch" : "model"));
    return;
  }
  mistrust(row, fmt::format("{:.0f} % of one rank's rate, {}", 100 * efficiency,
                            ci95 ? "beyond the interval: the base was measured in a worse state"
                                 : "which is not possible, from too few blocks for an interval"));
}

void fill_efficiency(const ScalePoint& p, const Point& base, const Causes& causes, Point& row) {
  auto& m = row.metrics;
  const double efficiency = rate_of_a_rank(row) / rate_of_a_rank(base);
  m[Metric::efficiency] = efficiency;
  if (is_baseline(p)) return;
  // The efficiency equals the ratio of the speeds, except where ranks serve and so take no samples.
  const double share = efficiency / causes.speed.value;
  std::optional<Estimate::Interval> ci95;
  if (causes.speed.ci95) {
    ci95 = {causes.speed.ci95->low * share, causes.speed.ci95->high * share};
    m[Metric::efficiency_ci95_low] = ci95->low;
    m[Metric::efficiency_ci95_high] = ci95->high;
  }
  doubt_gain(p, efficiency, ci95, row);
}

void fill_causes(const ScalePoint& p, const Measurement& measured, const Causes& causes, Point& row) {
  auto& m = row.metrics;
  m[Metric::contention_s] = causes.contention.value;
  m[Metric::straggle_s] = causes.straggle.value;
  if (p.strategy->communicates()) {
    m[Metric::exposed_s] = causes.exposed.value;
    if (causes.exposed.ci95) {
      m[Metric::exposed_ci95_low] = causes.exposed.ci95->low;
      m[Metric::exposed_ci95_high] = causes.exposed.ci95->high;
    }
  }
  // The ranks that share a replica communicate under any strategy.
  if (p.strategy->communicates() || p.mesh.replica_ranks() > 1) {
    m[Metric::interference_s] = causes.interference.value;
    if (measured.wait_known) m[Metric::wait_s] = causes.wait.value;
    m[Metric::wire_s] = causes.wire.value;
  }
  m[Metric::other_s] = causes.other.value;
  if (causes.straggler) m[Metric::slowest_rank] = static_cast<std::int64_t>(*causes.straggler);
}

bool is_crowded(const core::Metrics& m) {
  const auto* crowded = m[Metric::oversubscribed].as<bool>();
  return crowded && *crowded;
}

void fill_verdict(const ScalePoint& p, const References& references, const ComparedBlocks& blocks, const Causes& causes,
                  Point& row) {
  auto& m = row.metrics;
  const Disturbance disturbance{.base = core::share_of_disturbance(references.base->row.metrics),
                                .control = core::share_of_disturbance(references.control->row.metrics),
                                .point = core::share_of_disturbance(m)};
  const auto verdict = judge(blocks, causes, m.number(Metric::time_s), is_crowded(m), disturbance);
  if (!verdict) {
    add_reason(row, fmt::format("{} blocks in turn with the baseline and the control: no interval and no verdict",
                                blocks.point.size()));
    return;
  }
  if (blocks.has_equal_work() && causes.contention.value < -verdict->noise_s) {
    const double base = references.base->row.metrics.number(Metric::compute_s);
    add_reason(
        row, fmt::format(
                 "the baseline ran on a rank that takes {:.2f} times as long as the median one: efficiency is too high",
                 base / (base + causes.contention.value)));
  }
  m[Metric::bound_by] = verdict->bound_by;
  if (is_baseline(p)) return;  // nothing is lost by definition, so there is no probability
  m[Metric::bound_by_probability] = verdict->probability;
  m[Metric::bound_by_candidates] = to_text(verdict->candidates);
}

}  // namespace

void compare_row(const ScalePoint& p, const References& references, const Measurement& measured, Point& row) {
  auto& m = row.metrics;
  if (references.one_node) m[Metric::efficiency_node] = rate_of_a_rank(row) / rate_of_a_rank(references.one_node->row);
  if (references.one_rank)
    m[Metric::self_speedup] =
        m.number(Metric::samples_per_s) / references.one_rank->row.metrics.number(Metric::samples_per_s);
  if (!references.base || !references.control) return;
  const double step = m.number(Metric::time_s), base = references.base->row.metrics.number(Metric::time_s);
  // In strong scaling the ideal step is 1/P of one rank's step, and with a mesh 1/R, if R ranks share a replica's
  // batch.
  ComparedBlocks blocks = pair_blocks(references.base->measured, references.control->measured, measured);
  blocks.ideal_speedup = p.scaling == Scaling::strong ? p.ranks : p.mesh.replica_ranks();
  blocks.lock_step = !uses_ports(p.strategy->info().communication);
  blocks.wait_known = measured.wait_known;
  const Causes causes = find_causes(blocks, step, base, references.control->row.metrics.number(Metric::time_s));
  fill_baseline(references.base->row, m);
  fill_efficiency(p, references.base->row, causes, row);
  if (p.ranks > 1) fill_causes(p, measured, causes, row);
  fill_verdict(p, references, blocks, causes, row);
}

}  // namespace gradmeter::bench
