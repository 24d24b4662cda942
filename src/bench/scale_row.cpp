#include "bench/scale_row.hpp"

#include <algorithm>
#include <cmath>

#include "bench/explain.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using dataparallel::Decomposition;

void fill_times(const ScaleFindings& f, Point& row) {
  auto& m = row.metrics;
  row.raw_times_s = f.measurement.times();
  core::Summary time = core::summarise(row.raw_times_s);
  time.stop = f.measurement.stop;
  m[Metric::time_s] = time;
  m[Metric::compute_s] = f.measurement.median_of(&Decomposition::compute);
  m[Metric::samples_per_s] = static_cast<double>(f.point.batch_global) / time.median;
  m[Metric::flops_per_s] = f.training.model().step_flops(f.point.batch_per_rank) / time.median;
  m[Metric::warmup_s] = f.measurement.warmup_s;
  m[Metric::warmup_samples] = static_cast<std::int64_t>(f.measurement.warmup_steps);
  m[Metric::progress_threads] = static_cast<std::int64_t>(f.training.has_progress_thread());
  m[Metric::oversubscribed] = f.oversubscribed;
  if (!f.point.algorithm) return;
  m[Metric::comm_s] = f.measurement.median_of(&Decomposition::communication);
  m[Metric::exposed_union_s] = f.measurement.median_of(&Decomposition::exposed);
  m[Metric::overlap_s] = f.measurement.median_of(&Decomposition::overlap);
  if (f.point.codec) {
    m[Metric::encode_s] = f.measurement.median_of(&Decomposition::encode);
    m[Metric::decode_s] = f.measurement.median_of(&Decomposition::decode);
  }
  if (f.error) m[Metric::error] = *f.error;
  if (f.measurement.skew_known) m[Metric::skew_s] = f.measurement.median_of(&Decomposition::skew);
}

void fill_bytes(const ScaleFindings& f, Point& row) {
  const auto& samples = f.measurement.samples;
  if (!f.point.algorithm || samples.empty() || !samples.front().bytes_known) return;
  const StepSample& s = samples.front();
  row.metrics[Metric::bytes_sent_per_rank_max] = static_cast<std::int64_t>(s.bytes_sent_max);
  row.metrics[Metric::bytes_sent_total] = static_cast<std::int64_t>(s.bytes_sent_total);
  row.metrics[Metric::bytes_inter_node] = static_cast<std::int64_t>(s.bytes_between_nodes);
  row.metrics[Metric::bytes_predicted] = static_cast<std::int64_t>(s.bytes_due_total);
  const bool right = std::all_of(samples.begin(), samples.end(), [&](const StepSample& x) {
    return x.bytes_right && x.bytes_sent_total == s.bytes_sent_total;
  });
  if (right) return;
  row.status = core::Status::wrong;
  row.reason = "bytes sent differ from the schedule's messages";
}

void fill_limit(const ScaleFindings& f, Point& row) {
  const std::size_t exchanged = f.point.algorithm ? f.training.parameter_bytes() : 0;
  const auto bound =
      lower_bound(f.limits, f.training.model().step_flops(f.point.batch_per_rank), exchanged, f.point.ranks);
  row.metrics[Metric::limit_s] = bound.seconds();
  row.metrics[Metric::peak_flops_per_s] = f.limits.peak.value;
  if (f.point.algorithm) row.metrics[Metric::link_bytes_per_s] = f.limits.link.value;
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
  if (const double skew = m.number(Metric::skew_s); std::isfinite(skew)) loss.skew = skew;
  const auto* crowded = std::get_if<bool>(&m[Metric::oversubscribed]);
  m[Metric::limit] = binding_limit(loss, step, crowded && *crowded);
}

}  // namespace gradmeter::bench
