#include "bench/scale_row.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/explain.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using dataparallel::Decomposition;

/// Are there ranks to speak with, and does the strategy?
bool communicates(const ScalePoint& p) { return p.strategy->communicates() && p.ranks > 1; }

double total(const Measurement& m) {
  const auto times = m.times();
  return std::accumulate(times.begin(), times.end(), 0.0);
}

void fill_times(const ScaleFindings& f, Point& row) {
  auto& m = row.metrics;
  row.raw_times_s = f.measurement.times();
  core::Summary time = core::summarise(row.raw_times_s);
  time.stop = f.measurement.stop;
  m[Metric::time_s] = time;
  m[Metric::compute_s] = f.measurement.median_of(&Decomposition::compute);
  m[Metric::samples_per_s] = static_cast<double>(f.point.batch_global) / time.median;
  m[Metric::time_per_sample_s] = time.median / static_cast<double>(f.point.batch_global);
  m[Metric::flops_per_s] = f.training.model().step_flops(f.point.batch_per_rank) / time.median;
  m[Metric::warmup_s] = f.measurement.warmup_s;
  m[Metric::warmup_samples] = static_cast<std::int64_t>(f.measurement.warmup_steps);
  m[Metric::progress_threads] = static_cast<std::int64_t>(f.training.has_progress_thread());
  m[Metric::oversubscribed] = f.oversubscribed;
  if (const auto bytes = f.training.chosen_bucket()) m[Metric::bucket_chosen_bytes] = static_cast<std::int64_t>(*bytes);
  if (!communicates(f.point)) return;
  m[Metric::comm_s] = f.measurement.median_of(&Decomposition::communication);
  m[Metric::exposed_union_s] = f.measurement.median_of(&Decomposition::exposed);
  m[Metric::overlap_s] = f.measurement.median_of(&Decomposition::overlap);
  if (f.point.codec) {
    m[Metric::encode_s] = f.measurement.median_of(&Decomposition::encode);
    m[Metric::decode_s] = f.measurement.median_of(&Decomposition::decode);
  }
  if (f.error) m[Metric::error] = *f.error;
  if (f.measurement.skew_known) m[Metric::wait_s] = f.measurement.median_of(&Decomposition::skew);
}

void fill_bytes(const ScaleFindings& f, Point& row) {
  const auto& samples = f.measurement.samples;
  if (!communicates(f.point)) return;
  fill_totals(f.totals, row);
  const bool right = std::all_of(samples.begin(), samples.end(), [&](const StepSample& x) { return x.bytes_right; });
  if (right) return;
  row.status = core::Status::wrong;
  row.reason = "bytes sent differ from the schedule's messages";
}

/// What a rank must send in a step at least, on average over ranks: an all-reduce by its bound without help from the
/// network, whatever the algorithm; anything else by its own forecast.
double least_sent(const ScaleFindings& f) {
  if (!communicates(f.point)) return 0;
  const double ranks = f.point.ranks;
  const bool all_reduces = f.point.strategy->info().speech == dataparallel::Speech::all_reduce;
  if (!all_reduces && f.totals.forecast.known && f.totals.steps > 0) {
    return static_cast<double>(f.totals.forecast.bytes) / static_cast<double>(f.totals.steps) / ranks;
  }
  return 2 * (ranks - 1) / ranks * static_cast<double>(f.training.parameter_bytes());
}

void fill_limit(const ScaleFindings& f, Point& row) {
  const auto bound = lower_bound(f.limits, f.training.model().step_flops(f.point.batch_per_rank), least_sent(f));
  row.metrics[Metric::limit_s] = bound.seconds();
  row.metrics[Metric::peak_flops_per_s] = f.limits.peak.value;
  if (communicates(f.point)) row.metrics[Metric::link_bytes_per_s] = f.limits.link.value;
  row.metrics[Metric::roofline] = bound.seconds() / row.metrics.number(Metric::time_s);
}

}  // namespace

void fill_row(const ScaleFindings& f, Point& row) {
  if (f.measurement.samples.empty()) {
    row.status = core::Status::failed;
    row.reason = "no iteration met its window; use another cadence";
    return;
  }
  fill_times(f, row);
  fill_bytes(f, row);
  fill_waits(f.tally, row.metrics);
  fill_observations(f.totals.observed, f.measurement.warmup_s + total(f.measurement), row.metrics);
  fill_limit(f, row);
  fill_noise(f.noise, row);
}

void compare_row(const ScalePoint& p, const Point* baseline, const Point* control, Point& row) {
  auto& m = row.metrics;
  const double step = m.number(Metric::time_s);
  if (control) {
    m[Metric::exposed_s] = step - control->metrics.number(Metric::time_s);
    m[Metric::interference_s] = m.number(Metric::compute_s) - control->metrics.number(Metric::compute_s);
  }
  if (!baseline) return;
  const double base = baseline->metrics.number(Metric::time_s);
  m[Metric::baseline_time_s] = base;
  m[Metric::baseline_ranks] = std::int64_t{1};
  m[Metric::baseline_batch] = baseline->factors[Factor::batch_per_rank];
  m[Metric::efficiency] = m.number(Metric::samples_per_s) / p.ranks / baseline->metrics.number(Metric::samples_per_s);
  // Strong scaling's fair share of one rank's step is 1/P of it.
  const double ideal = p.scaling == Scaling::strong ? base / p.ranks : base;
  Loss loss{.lost = step - ideal};
  loss.exposed = control ? std::max(0.0, m.number(Metric::exposed_s)) : 0.0;
  loss.contention = loss.lost - loss.exposed;
  if (const double skew = m.number(Metric::wait_s); std::isfinite(skew)) loss.skew = skew;
  const auto* crowded = std::get_if<bool>(&m[Metric::oversubscribed]);
  m[Metric::bound_by] = binding_limit(loss, step, crowded && *crowded);
}

}  // namespace gradmeter::bench
