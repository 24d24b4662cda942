// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/row.hpp"

#include <algorithm>
#include <cmath>

#include "bench/engine/sweep.hpp"
#include "core/format.hpp"
#include "kernels/host/library.hpp"

namespace gradmeter::bench {
namespace {

using core::Metric;
using core::Point;

std::string at_rank(const KernelResults& f, int rank) {
  return f.ranks > 1 ? fmt::format(" on {} (rank {})", f.host_of(rank), rank) : "";
}

/// True if the whole 95 % interval of the time is below the bound; without an interval, if all samples are.
bool is_under_bound(const KernelResults& f) {
  if (f.times.count() == 0) return false;
  const core::Summary time = core::summarise(f.times);
  return (std::isnan(time.ci95_high) ? time.max : time.ci95_high) < f.bound.seconds;
}

/// The reason of a row whose operands are cold by name alone; empty: they are cold.
std::string why_not_cold(const KernelResults& f) {
  if (f.cached == 0) return {};
  return fmt::format("the caches hold all {} sets of operands, {} together, so these are not cold; give a larger shape",
                     f.sets, core::to_text(core::Bytes{f.cached}));
}

void fill_rates(const KernelResults& f, double seconds, Point& row) {
  auto& m = row.metrics;
  const double work = run_flops(f.point.problem);
  m[Metric::flops_per_s] = flops(f.point.problem) / seconds;
  m[Metric::full_flops_per_s] = work / seconds;
  m[Metric::bytes_per_s] = (f.on_host ? bytes(f.point.problem) : native_bytes(f.point.problem)) / seconds;
  if (f.bound.rate.value > 0) m[Metric::memory_bytes_per_s] = f.bound.rate.value;
  if (!(f.bound.seconds > 0)) return;
  m[Metric::peak_flops_per_s] = f.bound.peak.value;
  if (!f.bound.certain && is_under_bound(f)) return;  // the bound was no limit, since the call was faster
  m[Metric::limit_s] = f.bound.seconds;
  m[Metric::limit] = std::string(f.bound.name);
  m[Metric::roofline] = f.bound.seconds / seconds;
}

}  // namespace

void fill_kernel_check(const KernelResults& f, Point& row) {
  if (!f.checks) return;
  const KernelChecks& c = *f.checks;
  row.metrics[Metric::error] = c.error;
  if (c.wrong_rank >= 0) {
    return refuse(row, core::Status::wrong,
                  fmt::format("an element is {:.3g} times as far off as rounding may put it{}", c.worst,
                              at_rank(f, c.wrong_rank)));
  }
  if (c.zero_share > most_zeros) {
    refuse(row, core::Status::mistrusted, fmt::format("{:.0f} % of the result are zeros", 100 * c.zero_share));
  }
}

bool fill_timed_checks(const KernelResults& f, Point& row) {
  if (!f.timed_checks || f.timed_checks->wrong_rank < 0) return true;
  const KernelChecks& c = *f.timed_checks;
  const std::string where = at_rank(f, c.wrong_rank);
  refuse(row, core::Status::wrong,
         std::isfinite(c.worst) ? fmt::format("an element of a timed call's result is {:.3g} times as far off as "
                                              "rounding may put it{}",
                                              c.worst, where)
                                : fmt::format("a timed call did not write its whole result{}", where));
  return false;
}

bool beats_bound(const KernelResults& f) { return f.bound.certain && is_under_bound(f); }

void fill_kernel_times(const KernelResults& f, Point& row) {
  auto& m = row.metrics;
  row.raw_times_s.assign(f.times.samples().begin(), f.times.samples().end());
  core::Summary time = core::summarise(f.times);
  time.stop = f.stop;
  m[Metric::time_s] = time;
  if (time.median > 0) fill_rates(f, time.median, row);
  fill_medians(f.medians, f.host_of, m);
  m[Metric::calls_per_sample] = static_cast<std::int64_t>(f.calls);
  m[Metric::operand_sets] = static_cast<std::int64_t>(f.sets);
  m[Metric::warmup_s] = f.warmup_s;
  m[Metric::warmup_samples] = static_cast<std::int64_t>(f.warmup_samples);
  m[Metric::oversubscribed] = f.oversubscribed;
  m[Metric::implementation] = f.implementation;
  fill_noise(f.noise, row);
  const auto& p = f.point.problem;
  // Pointwise operations are our own loops, not the library's; there bf16 is only a storage format.
  if (row.status == core::Status::ok && f.on_host && p.operation() != kernels::KernelKind::pointwise)
    row.reason = kernels::how_multiplied(p.precision);
  if (const auto why = why_not_cold(f); row.status == core::Status::ok && !why.empty())
    row.reason = row.reason.empty() ? why : fmt::format("{}; {}", why, row.reason);
  if (beats_bound(f)) {
    refuse(row, core::Status::mistrusted,
           fmt::format("faster than the {} of this run allows, measured twice: one of the two is wrong; measure again",
                       f.bound.name == "compute" ? "best product" : "memory"));
  }
}

void fill_published(const std::string& set, core::Seconds time, Point& row) {
  if (!(time.value > 0)) return;
  row.metrics[Metric::published] = set;
  row.metrics[Metric::published_time_s] = time.value;
}

}  // namespace gradmeter::bench
