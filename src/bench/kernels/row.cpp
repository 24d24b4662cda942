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

std::string at_rank(const KernelResults& results, int rank) {
  return results.ranks > 1 ? fmt::format(" on {} (rank {})", results.host_of(rank), rank) : "";
}

/// True if the whole 95 % interval of the time is below the bound; without an interval, if all samples are.
bool is_under_bound(const KernelResults& results) {
  if (results.times.count() == 0) return false;
  const core::Summary time = core::summarise(results.times);
  return (std::isnan(time.ci95_high) ? time.max : time.ci95_high) < results.bound.seconds;
}

/// The reason of a row whose operands are cold by name alone; empty: they are cold.
std::string why_not_cold(const KernelResults& results) {
  if (results.cached_bytes == 0) return {};
  return fmt::format("the caches hold all {} sets of operands, {} together, so these are not cold; give a larger shape",
                     results.sets, core::to_text(core::Bytes{results.cached_bytes}));
}

void fill_rates(const KernelResults& results, double seconds, Point& row) {
  auto& m = row.metrics;
  const double work = run_flops(results.point.problem);
  m[Metric::flops_per_s] = flops(results.point.problem) / seconds;
  m[Metric::full_flops_per_s] = work / seconds;
  m[Metric::bytes_per_s] =
      (results.on_host ? bytes(results.point.problem) : native_bytes(results.point.problem)) / seconds;
  if (results.bound.rate.value > 0) m[Metric::memory_bytes_per_s] = results.bound.rate.value;
  if (!(results.bound.seconds > 0)) return;
  m[Metric::peak_flops_per_s] = results.bound.peak.value;
  if (!results.bound.certain && is_under_bound(results)) return;  // the bound was no limit, since the call was faster
  m[Metric::limit_s] = results.bound.seconds;
  m[Metric::limit] = std::string(results.bound.name);
  m[Metric::roofline] = results.bound.seconds / seconds;
}

}  // namespace

void fill_kernel_check(const KernelResults& results, Point& row) {
  if (!results.checks) return;
  const KernelChecks& c = *results.checks;
  row.metrics[Metric::error] = c.error;
  if (c.wrong_rank >= 0) {
    return refuse(row, core::Status::wrong,
                  fmt::format("an element is {:.3g} times as far off as rounding may put it{}", c.worst,
                              at_rank(results, c.wrong_rank)));
  }
  if (c.zero_share > most_zeros) {
    refuse(row, core::Status::mistrusted, fmt::format("{:.0f} % of the result are zeros", 100 * c.zero_share));
  }
}

bool fill_timed_checks(const KernelResults& results, Point& row) {
  if (!results.timed_checks || results.timed_checks->wrong_rank < 0) return true;
  const KernelChecks& c = *results.timed_checks;
  const std::string where = at_rank(results, c.wrong_rank);
  refuse(row, core::Status::wrong,
         std::isfinite(c.worst) ? fmt::format("an element of a timed call's result is {:.3g} times as far off as "
                                              "rounding may put it{}",
                                              c.worst, where)
                                : fmt::format("a timed call did not write its whole result{}", where));
  return false;
}

bool beats_bound(const KernelResults& results) { return results.bound.certain && is_under_bound(results); }

void fill_kernel_times(const KernelResults& results, Point& row) {
  auto& m = row.metrics;
  row.raw_times_s.assign(results.times.samples().begin(), results.times.samples().end());
  core::Summary time = core::summarise(results.times);
  time.stop = results.stop;
  m[Metric::time_s] = time;
  if (time.median > 0) fill_rates(results, time.median, row);
  fill_medians(results.medians, results.host_of, m);
  m[Metric::calls_per_sample] = static_cast<std::int64_t>(results.calls);
  m[Metric::operand_sets] = static_cast<std::int64_t>(results.sets);
  m[Metric::warmup_s] = results.warmup_s;
  m[Metric::warmup_samples] = static_cast<std::int64_t>(results.warmup_samples);
  m[Metric::oversubscribed] = results.oversubscribed;
  m[Metric::implementation] = results.implementation;
  fill_noise(results.noise, row);
  const auto& p = results.point.problem;
  // Pointwise operations are our own loops, not the library's; there bf16 is only a storage format.
  if (row.status == core::Status::ok && results.on_host && p.operation() != kernels::KernelKind::pointwise)
    row.reason = kernels::how_multiplied(p.precision);
  if (const auto why = why_not_cold(results); row.status == core::Status::ok && !why.empty())
    row.reason = row.reason.empty() ? why : fmt::format("{}; {}", why, row.reason);
  if (beats_bound(results)) {
    refuse(row, core::Status::mistrusted,
           fmt::format("faster than the {} of this run allows, measured twice: one of the two is wrong; measure again",
                       results.bound.name == "compute" ? "best product" : "memory"));
  }
}

void fill_published(const std::string& set, core::Seconds time, Point& row) {
  if (!(time.value > 0)) return;
  row.metrics[Metric::published] = set;
  row.metrics[Metric::published_time_s] = time.value;
}

}  // namespace gradmeter::bench
