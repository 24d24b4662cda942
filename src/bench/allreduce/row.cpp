// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/row.hpp"

#include <algorithm>
#include <cmath>

#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using core::Metric;
using core::Point;

/// Clocks go in steps (of 10 ns on some virtual machines), so that most samples of a short call are equal. Their median
/// is then known to one step only. So the interval is widened to the nearest samples that differ from the median, and
/// by the rounding of clock readings.
void widen_to_clock_steps(std::span<const double> samples, std::size_t calls, core::Summary& time) {
  const double resolution = 1.5e-9 / static_cast<double>(calls);  // readings are rounded to 1 ns
  for (const bool is_above : {false, true}) {
    double nearest = is_above ? HUGE_VAL : -HUGE_VAL;
    for (const double s : samples) {
      if (is_above && s > time.median + resolution) nearest = std::min(nearest, s);
      if (!is_above && s < time.median - resolution) nearest = std::max(nearest, s);
    }
    if (!std::isfinite(nearest)) continue;
    double& bound = is_above ? time.ci95_high : time.ci95_low;
    bound = is_above ? std::max(bound, nearest + resolution) : std::min(bound, nearest - resolution);
  }
}

void fill_times(const CollectiveMeasurement& measurement, int ranks, Point& row) {
  auto& m = row.metrics;
  row.raw_times_s.assign(measurement.times.samples().begin(), measurement.times.samples().end());
  core::Summary time = core::summarise(measurement.times);
  widen_to_clock_steps(measurement.times.samples(), measurement.point.calls, time);
  time.stop = measurement.stop;
  m[Metric::time_s] = time;
  fill_blocks(measurement.blocks, m);
  const double algbw = time.median > 0 ? static_cast<double>(measurement.point.bytes()) / time.median : 0;
  m[Metric::algbw_bytes_per_s] = algbw;
  m[Metric::busbw_bytes_per_s] = algbw * measurement.point.collective->busbw_factor(ranks);
  m[Metric::warmup_s] = measurement.warmup_s;
  m[Metric::warmup_samples] = static_cast<std::int64_t>(measurement.warmup_iterations);
  m[Metric::oversubscribed] = measurement.oversubscribed;
  m[Metric::implementation] = measurement.implementation;
  if (measurement.coding) {
    m[Metric::encode_s] = measurement.coding->encode_s;
    m[Metric::decode_s] = measurement.coding->decode_s;
  }
  if (!measurement.overlap) return;
  m[Metric::comm_s] = measurement.overlap->exchange_s;
  m[Metric::compute_s] = measurement.overlap->compute_s;
  m[Metric::exposed_s] = time.median - measurement.overlap->compute_s;
  m[Metric::overlap_s] = measurement.overlap->exchange_s + measurement.overlap->compute_s - time.median;
  m[Metric::progress_threads] = std::int64_t{1};
}

void fill_bytes(const SentBytes& sent, Point& row) {
  auto& m = row.metrics;
  m[Metric::bytes_sent_per_rank_max] = static_cast<std::int64_t>(sent.most_by_one_rank);
  m[Metric::bytes_sent_total] = static_cast<std::int64_t>(sent.total);
  m[Metric::bytes_inter_node] = static_cast<std::int64_t>(sent.between_nodes);
  m[Metric::bytes_predicted] = static_cast<std::int64_t>(sent.required);
  if (sent.right || row.status == core::Status::wrong) return;
  row.status = core::Status::wrong;
  row.reason = "bytes sent differ from the schedule's messages";
}

void fill_check(const CheckOfAllRanks& check, Point& row) {
  row.metrics[Metric::wrong] = static_cast<std::int64_t>(check.wrong);
  row.metrics[Metric::error] = check.error;
  if (check.is_right()) return;
  row.status = core::Status::wrong;
  if (!check.fault.empty()) {
    row.reason = check.fault;
    return;
  }
  row.reason = check.wrong ? fmt::format("{} element{} outside the tolerance, over all ranks", check.wrong,
                                         check.wrong == 1 ? " is" : "s are")
                           : "ranks hold different bits";
}

}  // namespace

void fill_collective_row(const CollectiveMeasurement& measurement, int ranks, Point& row) {
  if (measurement.check) fill_check(*measurement.check, row);
  if (measurement.sent) fill_bytes(*measurement.sent, row);
  if (measurement.times.count() == 0) {
    if (row.status == core::Status::wrong) return;
    row.status = core::Status::failed;
    row.reason = "no iteration met its window; use another cadence";
    return;
  }
  fill_times(measurement, ranks, row);
  fill_noise(measurement.noise, row);
}

bool is_faster_than(const CollectiveLimit& limit, const Point& row) {
  const auto* time = row.metrics[Metric::time_s].as<core::Summary>();
  if (row.status != core::Status::ok || !time) return false;
  return (std::isnan(time->ci95_high) ? time->max : time->ci95_high) < limit.low;  // without an interval: all samples
}

void fill_collective_limit(const CollectiveLimit& limit, Point& row) {
  if (!(limit.seconds > 0)) return;
  row.metrics[Metric::limit_s] = limit.seconds;
  row.metrics[Metric::limit] = limit.name;
  if (limit.link.value > 0) row.metrics[Metric::link_bytes_per_s] = limit.link.value;
  if (!is_faster_than(limit, row)) return;
  row.status = core::Status::mistrusted;
  row.reason = fmt::format("faster than can be: {} where its {} alone takes {}",
                           core::to_text(core::Seconds{row.metrics.number(Metric::time_s)}), limit.name,
                           core::to_text(core::Seconds{limit.seconds}));
}

}  // namespace gradmeter::bench
