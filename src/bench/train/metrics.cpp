// SPDX-License-Identifier: Apache-2.0
#include "bench/train/metrics.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "core/format.hpp"

namespace gradmeter::bench {

using core::Metric;

void fill_waits(const StepSamples& t, core::Metrics& m) {
  const double steps_s = std::accumulate(t.times.begin(), t.times.end(), 0.0);
  if (steps_s <= 0) return;
  double waited_s = 0;
  std::vector<std::pair<double, std::string>> causes;
  for (const auto& [cause, seconds] : t.waits) {
    waited_s += seconds;
    causes.emplace_back(seconds, cause);
  }
  // The share of waits in the time of all steps, so that a few long steps count fully, times the median step, which the
  // row shows.
  m[Metric::standstill_s] = waited_s / steps_s * m.number(Metric::time_s);
  if (waited_s <= 0) return;
  std::sort(causes.rbegin(), causes.rend());
  std::string text;
  for (const auto& [seconds, cause] : causes) {
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", cause, 100 * seconds / waited_s);
  }
  m[Metric::standstill_causes] = text;
}

std::vector<double> period_means(std::span<const double> steps, std::size_t period) {
  std::vector<double> means;
  const std::size_t length = std::min(std::max<std::size_t>(1, period), steps.size());
  for (std::size_t i = 0; length > 0 && i + length <= steps.size(); i += length) {
    const auto period_steps = steps.subspan(i, length);
    means.push_back(std::accumulate(period_steps.begin(), period_steps.end(), 0.0) / static_cast<double>(length));
  }
  return means;
}

StalenessSummary summarise_staleness(std::span<const std::uint64_t> counts) {
  const auto total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  StalenessSummary s;
  std::uint64_t seen = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    if (counts[k] == 0) continue;
    s.mean += static_cast<double>(k) * static_cast<double>(counts[k]) / static_cast<double>(total);
    if (seen * 100 < total * 99) s.p99 = k;
    seen += counts[k];
    s.max = k;
  }
  return s;
}

void fill_observations(const dataparallel::Observations& o, double seconds, core::Metrics& m) {
  if (o.updates == 0) return;
  const auto s = summarise_staleness(o.staleness);
  m[Metric::staleness] = o.mean_staleness();
  m[Metric::staleness_p99] = static_cast<std::int64_t>(s.p99);
  m[Metric::staleness_max] = static_cast<std::int64_t>(s.max);
  m[Metric::clock_gap] = static_cast<std::int64_t>(o.largest_gap);
  m[Metric::held_s] = o.read_wait_s;
  if (o.dropped > 0) m[Metric::updates_dropped] = static_cast<std::int64_t>(o.dropped);
  if (seconds > 0) m[Metric::updates_per_s] = static_cast<double>(o.updates) / seconds;
}

void fill_loss_scale(const std::optional<dataparallel::LossScaler::State>& s, core::Metrics& m) {
  if (!s) return;
  m[Metric::loss_scale_last] = double{s->scale};
  m[Metric::steps_skipped] = static_cast<std::int64_t>(s->skipped);
}

void fill_totals(const TrainingTotals& t, core::Point& p) {
  if (!t.bytes_known || t.steps == 0) return;
  const auto per_step = [&](std::uint64_t bytes) { return static_cast<std::int64_t>(bytes / t.steps); };
  p.metrics[Metric::bytes_sent_total] = per_step(t.bytes_sent);
  p.metrics[Metric::bytes_sent_per_rank_max] = per_step(t.bytes_sent_max);
  p.metrics[Metric::bytes_inter_node] = per_step(t.bytes_between_nodes);
  p.metrics[Metric::bytes_predicted] = per_step(t.expected_bytes());
  if (t.bytes_agree() || p.status == core::Status::wrong) return;  // the first reason may be the cause of this one
  p.status = core::Status::wrong;
  p.reason = t.fault();
}

void mistrust(core::Point& p, const std::string& why) {
  p.status = core::Status::mistrusted;
  p.reason = p.reason.empty() ? why : fmt::format("{}; {}", why, p.reason);
}

GradientNorms gradient_norms(const runtime::Communicator& c, std::span<const float> mine) {
  constexpr std::size_t chunk = 1 << 16;
  std::vector<double> sum;
  double part = 0, whole = 0;
  for (std::size_t i = 0; i < mine.size(); i += chunk) {
    const auto values = mine.subspan(i, std::min(chunk, mine.size() - i));
    sum.assign(values.begin(), values.end());
    for (const double x : sum) part += x * x;
    c.sum(sum);
    for (const double x : sum) whole += x * x;
  }
  const auto ranks = static_cast<double>(c.size());
  return {.part_square = c.sum(part) / ranks, .mean_square = whole / (ranks * ranks)};
}

NoiseScale::NoiseScale(std::size_t part_batch, std::size_t whole_batch)
    : part_batch_(static_cast<double>(part_batch)), whole_batch_(static_cast<double>(whole_batch)) {
  if (part_batch == 0 || part_batch >= whole_batch) {
    throw std::invalid_argument("a noise scale takes gradients of two batch sizes");
  }
}

void NoiseScale::add(const GradientNorms& n) {
  sums_.part_square += n.part_square;
  sums_.mean_square += n.mean_square;
  ++steps_;
}

// E‖g_B‖² = ‖G‖² + tr Σ/B for a batch of B independent samples: two equations.
double NoiseScale::gradient_square() const {
  if (steps_ == 0) return 0;
  return (whole_batch_ * sums_.mean_square - part_batch_ * sums_.part_square) / (whole_batch_ - part_batch_) /
         static_cast<double>(steps_);
}

double NoiseScale::variance() const {
  if (steps_ == 0) return 0;
  return (sums_.part_square - sums_.mean_square) / (1 / part_batch_ - 1 / whole_batch_) / static_cast<double>(steps_);
}

std::optional<double> NoiseScale::samples() const {
  const double gradient = gradient_square(), noise = variance();
  if (!(gradient > 0) || !(noise > 0)) return std::nullopt;
  return noise / gradient;
}

}  // namespace gradmeter::bench
