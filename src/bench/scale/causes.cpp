#include "bench/scale/causes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace gradmeter::bench {
namespace {

/// For the ranks that train: those that serve compute nothing.
std::vector<double> sorted_workers(const StepBlock& control, const StepBlock& point) {
  std::vector<double> out;
  for (std::size_t r = 0; r < control.compute.size(); ++r) {
    if (point.compute.at(r) > 0) out.push_back(control.compute[r]);
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// The lower one of two middle ranks: of two ranks the faster, so that a slow one counts as straggle, not contention.
double lower_median(std::span<const double> sorted) { return sorted.empty() ? 0 : sorted[(sorted.size() - 1) / 2]; }

double mean(std::span<const double> values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void include_value(Estimate& e) {
  if (e.ci95) e.ci95 = {std::min(e.ci95->low, e.value), std::max(e.ci95->high, e.value)};
}

/// Medians do not add up as the blocks do. Least squares by the parts' variances: narrow intervals hardly change.
void make_add_up(std::span<Estimate* const> parts, double sum) {
  double rest = sum, widths = 0;
  const auto square_of_width = [](const Estimate& e) {
    return e.ci95 ? (e.ci95->high - e.ci95->low) * (e.ci95->high - e.ci95->low) : 0;
  };
  for (const Estimate* e : parts) rest -= e->value, widths += square_of_width(*e);
  for (Estimate* e : parts) {
    if (widths == 0 && e != parts.back()) continue;
    e->value += widths > 0 ? rest * square_of_width(*e) / widths : rest;
    include_value(*e);
  }
}

/// The rank that computed longest in most blocks of the control.
std::optional<int> straggler_of(const ComparedBlocks& b, const Estimate& straggle) {
  std::map<int, std::size_t> blocks;
  for (const auto* c : b.control) ++blocks[c->longest];
  const auto most =
      std::max_element(blocks.begin(), blocks.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  constexpr double noticeable = 0.05;  // of the base's step, as for lost time
  const double step = b.base.empty() ? 0 : b.base.front()->step / b.ideal;
  if (most == blocks.end() || 3 * most->second < 2 * b.control.size()) return std::nullopt;
  if (!straggle.ci95 || !(straggle.ci95->low > 0) || straggle.value < noticeable * step) return std::nullopt;
  return most->first;
}

}  // namespace

Estimate estimate(std::span<const double> blocks) {
  if (blocks.empty()) return {};
  const core::Summary s = core::summarise(blocks);
  if (!std::isfinite(s.ci95_low) || !std::isfinite(s.ci95_high)) return {s.median};
  return {s.median, Estimate::Interval{s.ci95_low, s.ci95_high}};
}

ComparedBlocks pair_blocks(const Measurement& base, const Measurement& control, const Measurement& point) {
  const auto by_round = [](const Measurement& m) {
    std::map<std::size_t, const StepBlock*> out;
    for (const auto& b : m.blocks) out[b.round] = &b;
    return out;
  };
  const auto bases = by_round(base), controls = by_round(control);
  ComparedBlocks out;
  for (const auto& b : point.blocks) {
    const auto of_base = bases.find(b.round), of_control = controls.find(b.round);
    if (of_base == bases.end() || of_control == controls.end()) continue;
    out.base.push_back(of_base->second);
    out.control.push_back(of_control->second);
    out.point.push_back(&b);
  }
  return out;
}

ComparedTimes times_of(const ComparedBlocks& b, std::size_t i) {
  const StepBlock &base = *b.base[i], &control = *b.control[i], &point = *b.point[i];
  const auto workers = sorted_workers(control, point);
  ComparedTimes t{
      .base_compute = base.parts.compute / b.ideal,
      .base_rest = (base.step - base.parts.compute) / b.ideal,
      .median_compute = lower_median(workers),
      // Without lock step there is no one rank that all wait for: the workers' mean takes its place.
      .own_compute = b.lock_step ? control.compute.at(static_cast<std::size_t>(point.longest)) : mean(workers),
      .compute = point.parts.compute,
      .wait = point.parts.wait,
      .wire = b.lock_step ? point.parts.exposed - point.parts.wait : point.parts.handling};
  t.rest = point.step - t.compute - t.wait - t.wire;
  if (!b.wait_known) t.wire += std::exchange(t.wait, 0);
  return t;
}

std::array<double, cause_count> ComparedTimes::parts() const {
  return {
      median_compute - base_compute, own_compute - median_compute, compute - own_compute, wait, wire, rest - base_rest};
}

double ComparedTimes::lost() const { return compute + wait + wire + rest - base_compute - base_rest; }

Causes find_causes(const ComparedBlocks& b, double step_s, double base_s, double control_s) {
  std::array<std::vector<double>, cause_count> parts;
  std::vector<double> exposed, speed;
  for (std::size_t i = 0; i < b.point.size(); ++i) {
    const auto of_block = times_of(b, i).parts();
    for (std::size_t k = 0; k < cause_count; ++k) parts[k].push_back(of_block[k]);
    exposed.push_back(b.point[i]->step - b.control[i]->step);
    speed.push_back(b.base[i]->step / b.ideal / b.point[i]->step);
  }
  Causes c{.lost = step_s - base_s / b.ideal, .exposed = estimate(exposed), .speed = estimate(speed)};
  for (std::size_t k = 0; k < cause_count; ++k) *c.parts()[k] = estimate(parts[k]);
  if (b.point.empty()) return c;
  make_add_up(c.parts(), c.lost);
  c.exposed.value = step_s - control_s;
  c.speed.value = base_s / b.ideal / step_s;
  // Ratios and differences of medians are not medians of ratios and differences, so the interval includes both.
  include_value(c.exposed);
  include_value(c.speed);
  c.straggler = straggler_of(b, c.straggle);
  return c;
}

}  // namespace gradmeter::bench
