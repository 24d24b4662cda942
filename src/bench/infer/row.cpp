#include "bench/infer/row.hpp"

#include "bench/engine/own_times.hpp"
#include "bench/engine/sweep.hpp"

namespace gradmeter::bench {

using core::Metric;

void fill_accuracy(const InferPoint& p, const PrecisionAccuracy& a, core::Point& row) {
  auto& m = row.metrics;
  m[Metric::error] = a.error;
  if (auto why = accuracy_fault(p.precision, a); !why.empty()) return refuse(row, core::Status::wrong, std::move(why));
  m[Metric::accuracy] = a.accuracy;
  m[Metric::accuracy_lost] = a.lost.value;
  m[Metric::accuracy_lost_ci95_low] = a.lost.low;
  m[Metric::accuracy_lost_ci95_high] = a.lost.high;
  if (!p.is_timed()) m[Metric::emulated] = true;
}

void fill_latency(const InferPoint& p, const LatencyFindings& f, int ranks,
                  const std::function<std::string(int rank)>& host_of, core::Point& row) {
  if (!f.fault.empty()) return refuse(row, core::Status::wrong, f.fault);
  auto& m = row.metrics;
  row.raw_times_s.assign(f.times.samples().begin(), f.times.samples().end());
  core::Summary time = core::summarise(f.times);
  time.stop = f.stop;
  m[Metric::time_s] = time;
  m[Metric::samples_per_s] = static_cast<double>(p.batch) * ranks / time.median;
  m[Metric::warmup_s] = f.warmup_s;
  m[Metric::warmup_samples] = static_cast<std::int64_t>(f.warmup_samples);
  fill_noise(f.noise, row);
  fill_medians(f.medians, host_of, m);
}

void fill_speedup(const core::Point& fp32, core::Point& row) {
  row.metrics[Metric::speedup] = fp32.metrics.number(Metric::time_s) / row.metrics.number(Metric::time_s);
}

}  // namespace gradmeter::bench
