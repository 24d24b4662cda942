// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/causes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "core/format.hpp"
#include "core/random.hpp"
#include "core/statistics.hpp"

namespace gradmeter::bench {
namespace {

/// The control's compute times on the ranks that train at the point, ascending. Ranks that serve compute nothing.
std::vector<double> sorted_workers(const StepBlock& control, const StepBlock& point) {
  std::vector<double> out;
  for (std::size_t r = 0; r < control.compute.size(); ++r) {
    if (point.compute.at(r) > 0) out.push_back(control.compute[r]);
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// The median; of two middle values the lower, so that of two ranks a slow one counts as straggle, not contention.
double lower_median(std::span<const double> sorted) { return sorted.empty() ? 0 : sorted[(sorted.size() - 1) / 2]; }

/// The mean of the control's compute times on the ranks that train at the point. A worker counts as often as it makes
/// steps at the point: the point's own times are such means, and from another mean they would differ where nothing
/// does.
double mean_of_workers(const StepBlock& control, const StepBlock& point) {
  double sum = 0, rates = 0;
  for (std::size_t r = 0; r < control.compute.size(); ++r) {
    if (!(point.compute.at(r) > 0)) continue;
    const double rate = 1 / point.step_by_rank.at(r);
    sum += rate * control.compute[r];
    rates += rate;
  }
  return rates > 0 ? sum / rates : 0;
}

/// The share of the point's kernel time in kernels that the control does not have, or has less often: what a strategy
/// computes beyond a usual step. No exchange has made these slower. It is 0 where the control's kernels are unknown.
double share_of_extra_work(const StepBlock& control, const StepBlock& point) {
  if (control.kernels.empty()) return 0;
  double total_s = 0, common = 0;
  for (const KernelTimes& k : point.kernels) {
    const auto same = std::ranges::find(control.kernels, k.name, &KernelTimes::name);
    const double usual = same == control.kernels.end() ? 0 : std::min(1.0, same->count / k.count);
    total_s += k.seconds;
    common += usual * k.seconds;
  }
  return total_s > 0 ? 1 - common / total_s : 0;
}

void include_value(Estimate& e) {
  if (e.ci95) e.ci95 = {std::min(e.ci95->low, e.value), std::max(e.ci95->high, e.value)};
}

/// Widens the interval of a ratio of two times to at least the share that the interval of a time has.
void include_difference_of_launches(Estimate& e) {
  constexpr double share = core::least_interval_share;
  if (e.ci95) {
    e.ci95 = {std::min(e.ci95->low, e.value * (1 - share)), std::max(e.ci95->high, e.value * (1 + share))};
  }
}

/// Makes the parts add up to `sum`, by least squares with their variances: parts with narrow intervals hardly change.
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

/// The rank that computed longest in at least two thirds of the control's blocks, if the straggle is noticeable.
std::optional<int> straggler_of(const ComparedBlocks& compared, const Estimate& straggle) {
  std::map<int, std::size_t> blocks;
  for (const auto* c : compared.control) ++blocks[c->longest_rank];
  const auto most =
      std::max_element(blocks.begin(), blocks.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  constexpr double noticeable = 0.05;  // share of the base's step, as for lost time
  const double step = compared.base.empty() ? 0 : compared.base.front()->step / compared.ideal_speedup;
  if (most == blocks.end() || 3 * most->second < 2 * compared.control.size()) return std::nullopt;
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

ComparedTimes times_of(const ComparedBlocks& compared, std::size_t i) {
  const StepBlock &base = *compared.base[i], &control = *compared.control[i], &point = *compared.point[i];
  const auto workers = sorted_workers(control, point);
  ComparedTimes t{.base_compute = base.parts.compute / compared.ideal_speedup,
                  .base_rest = (base.step - base.parts.compute) / compared.ideal_speedup,
                  .median_compute = lower_median(workers),
                  // Without lock step there is no one rank that all wait for: the workers' mean takes its place.
                  .control_compute = compared.lock_step
                                         ? control.compute.at(static_cast<std::size_t>(point.longest_rank))
                                         : mean_of_workers(control, point),
                  .compute = point.parts.compute,
                  .wait = point.parts.wait,
                  .wire = compared.lock_step ? point.parts.exposed - point.parts.wait : point.parts.handling};
  t.rest = point.step - t.compute - t.wait - t.wire;
  if (!compared.wait_known) t.wire += std::exchange(t.wait, 0);
  const double extra_work = t.compute * share_of_extra_work(control, point);
  t.compute -= extra_work;
  t.rest += extra_work;
  // A single rank exchanges nothing that could slow down its kernels, so their time beyond the control's is `other`.
  if (point.compute.size() == 1) t.rest += std::exchange(t.compute, t.control_compute) - t.control_compute;
  return t;
}

std::array<double, cause_count> ComparedTimes::parts() const {
  return {median_compute - base_compute,
          control_compute - median_compute,
          compute - control_compute,
          wait,
          wire,
          rest - base_rest};
}

double ComparedTimes::lost() const { return compute + wait + wire + rest - base_compute - base_rest; }

Causes find_causes(const ComparedBlocks& compared, double step_s, double base_s, double control_s) {
  std::array<std::vector<double>, cause_count> parts;
  std::vector<double> exposed, speed;
  for (std::size_t i = 0; i < compared.point.size(); ++i) {
    const auto of_block = times_of(compared, i).parts();
    for (std::size_t k = 0; k < cause_count; ++k) parts[k].push_back(of_block[k]);
    exposed.push_back(compared.point[i]->step - compared.control[i]->step);
    speed.push_back(compared.base[i]->step / compared.ideal_speedup / compared.point[i]->step);
  }
  Causes causes{
      .lost = step_s - base_s / compared.ideal_speedup, .exposed = estimate(exposed), .speed = estimate(speed)};
  for (std::size_t k = 0; k < cause_count; ++k) *causes.parts()[k] = estimate(parts[k]);
  if (compared.point.empty()) return causes;
  make_add_up(causes.parts(), causes.lost);
  causes.exposed.value = step_s - control_s;
  causes.speed.value = base_s / compared.ideal_speedup / step_s;
  // Ratios and differences of medians are not medians of ratios and differences, so the interval includes both.
  include_value(causes.exposed);
  include_value(causes.speed);
  include_difference_of_launches(causes.speed);
  causes.straggler = straggler_of(compared, causes.straggle);
  return causes;
}

namespace {

constexpr std::size_t resamples = 1000;
constexpr std::uint64_t seed = 1;  ///< fixed, so that the same blocks give the same verdict
/// A resample's answer is the index of a cause, or this number where nothing was lost.
constexpr std::size_t nothing_lost = cause_count;

std::string_view answer_name(std::size_t answer, bool oversubscribed) {
  if (answer == nothing_lost) return "compute";
  switch (static_cast<Cause>(answer)) {
    case Cause::contention:
      return oversubscribed ? "cores" : "memory";
    case Cause::straggle:
      return "straggle";
    case Cause::interference:
      return "interference";
    case Cause::wait:
      return "wait";
    case Cause::wire:
      return "wire";
    case Cause::other:
      break;
  }
  return "other";
}

/// The figures of a block are its six parts, then the lost time.
constexpr std::size_t figure_count = cause_count + 1;
constexpr std::size_t all_lost = cause_count;
using Figures = std::array<double, figure_count>;

/// Computes the figures' medians over some of the blocks.
class FiguresOfBlocks {
 public:
  explicit FiguresOfBlocks(std::span<const ComparedTimes> blocks) : scratch_(blocks.size()) {
    for (const ComparedTimes& b : blocks) {
      const auto parts = b.parts();
      for (std::size_t k = 0; k < cause_count; ++k) values_[k].push_back(parts[k]);
      values_[all_lost].push_back(b.lost());
    }
  }
  /// blocks: indices of blocks; as many as there are blocks, with repetitions.
  Figures medians_over(std::span<const std::size_t> blocks) {
    Figures out{};
    for (std::size_t k = 0; k < figure_count; ++k) {
      std::ranges::transform(blocks, scratch_.begin(), [&](std::size_t b) { return values_[k][b]; });
      out[k] = median_of_scratch();
    }
    return out;
  }

 private:
  double median_of_scratch() {
    const auto middle = scratch_.begin() + static_cast<std::ptrdiff_t>(scratch_.size() / 2);
    std::ranges::nth_element(scratch_, middle);
    return scratch_.size() % 2 == 1 ? *middle : (*middle + *std::max_element(scratch_.begin(), middle)) / 2;
  }

  std::array<std::vector<double>, figure_count> values_;
  std::vector<double> scratch_;
};

/// The median of each time over the blocks.
ComparedTimes median_times(std::span<const ComparedTimes> blocks) {
  ComparedTimes out;
  std::vector<double> values(blocks.size());
  for (const auto time : {&ComparedTimes::base_compute, &ComparedTimes::base_rest, &ComparedTimes::median_compute,
                          &ComparedTimes::control_compute, &ComparedTimes::compute, &ComparedTimes::wait,
                          &ComparedTimes::wire, &ComparedTimes::rest}) {
    std::ranges::transform(blocks, values.begin(), [time](const ComparedTimes& b) { return b.*time; });
    out.*time = core::median(values);
  }
  return out;
}

/// The time that the machine may have added to each time of one resample. Each is drawn by itself, since a delay
/// affects single ranks. Without the additions, ranks are never faster beside others than alone, the longest rank is
/// never faster than the median one, and kernels are never faster beside an exchange. Where the point is its own
/// control, or the control is the baseline, their times are the same and share a draw. On one rank `rest` holds the
/// kernels' time beyond the control's, so that a delay of the whole step may explain it.
ComparedTimes machine_error(const ComparedBlocks& compared, const ComparedTimes& t, const Disturbance& d,
                            std::uint64_t resample) {
  const core::Random random(seed, 1 + resample);
  std::uint64_t i = 0;
  const auto added = [&](double time, double most) { return most * random.uniform(i++) * time; };
  const auto added_above = [&](double least, double time, double most) {
    return std::min(added(time, most), std::max(0.0, time - least));
  };
  const bool is_alone = compared.control.front() == compared.base.front();
  const bool is_control = compared.point.front() == compared.control.front();
  const bool is_one_rank = compared.point.front()->compute.size() == 1;
  ComparedTimes e;
  e.base_compute = added(t.base_compute, d.base);
  e.base_rest = added(t.base_rest, d.base);
  e.median_compute =
      is_alone ? e.base_compute : added_above(t.base_compute - e.base_compute, t.median_compute, d.control);
  e.control_compute =
      is_alone ? e.base_compute : added_above(t.median_compute - e.median_compute, t.control_compute, d.control);
  e.compute = is_control || is_one_rank ? e.control_compute
                                        : added_above(t.control_compute - e.control_compute, t.compute, d.point);
  e.wait = added(t.wait, d.point);
  e.wire = added(t.wire, d.point);
  if (is_alone && is_control) {
    e.rest = e.base_rest;
  } else {
    e.rest = is_one_rank ? std::min(added(t.compute + t.rest, d.point), t.rest) : added(t.rest, d.point);
  }
  return e;
}

/// The index of the cause with the largest part.
std::size_t largest_part(Causes& c) {
  const auto parts = c.parts();
  const auto value = [](const Estimate* part) { return part->value; };
  return static_cast<std::size_t>(std::ranges::max_element(parts, {}, value) - parts.begin());
}

/// The lost time up to which nothing counts as lost [s]: half the width of the efficiency's interval, as a share of the
/// step. It is at least 5 %, below which a loss hardly matters, and at most 15 %, beyond which real losses would be
/// hidden.
double noise_of(const Estimate::Interval& speed, double step_s) {
  return std::clamp((speed.high - speed.low) / 2, 0.05, 0.15) * step_s;
}

}  // namespace

std::string to_text(const std::vector<Verdict::Candidate>& candidates) {
  std::vector<std::string> out;
  for (const auto& c : candidates) out.push_back(fmt::format("{} {:.0f} %", c.bound_by, 100 * c.probability));
  return fmt::format("{}", fmt::join(out, ", "));
}

std::optional<Verdict> judge(const ComparedBlocks& compared, Causes causes, double step_s, bool oversubscribed,
                             const Disturbance& disturbance) {
  if (!causes.speed.ci95) return std::nullopt;
  std::vector<ComparedTimes> blocks;
  std::vector<std::size_t> drawn;
  for (std::size_t i = 0; i < compared.point.size(); ++i) blocks.push_back(times_of(compared, i)), drawn.push_back(i);
  FiguresOfBlocks figures(blocks);
  // The row's figures add up, but medians over blocks do not. So resamples are shifted to centre on the row's figures.
  const Figures medians = figures.medians_over(drawn);
  Figures shifts{};
  for (std::size_t k = 0; k < cause_count; ++k) shifts[k] = causes.parts()[k]->value - medians[k];
  shifts[all_lost] = causes.lost - medians[all_lost];

  Verdict out{.noise_s = noise_of(*causes.speed.ci95, step_s)};
  const ComparedTimes times = median_times(blocks);
  const core::Random random(seed, 0);
  std::array<std::size_t, figure_count> votes{};
  for (std::size_t n = 0; n < resamples; ++n) {
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = random.below(n * drawn.size() + i, drawn.size());
    Figures drawn_figures = figures.medians_over(drawn);
    const ComparedTimes error = machine_error(compared, times, disturbance, n);
    const auto errors = error.parts();
    for (std::size_t k = 0; k < cause_count; ++k) drawn_figures[k] += shifts[k] - errors[k];
    // A slow baseline rank hides straggle: the other ranks are faster than the baseline, and wait for the slow rank.
    const double contention = drawn_figures[static_cast<std::size_t>(Cause::contention)];
    const double hidden = compared.has_equal_work() && contention < -out.noise_s ? -contention : 0;
    const double lost = drawn_figures[all_lost] + shifts[all_lost] - error.lost() + hidden;
    const auto largest = std::max_element(drawn_figures.begin(), drawn_figures.begin() + cause_count);
    ++votes[lost < out.noise_s ? nothing_lost : static_cast<std::size_t>(largest - drawn_figures.begin())];
  }
  for (std::size_t answer = 0; answer < votes.size(); ++answer) {
    const double share = static_cast<double>(votes[answer]) / resamples;
    if (share >= 0.01) out.candidates.push_back({std::string(answer_name(answer, oversubscribed)), share});
  }
  std::ranges::stable_sort(out.candidates, std::ranges::greater{}, &Verdict::Candidate::probability);
  const auto& likeliest = out.candidates.front();
  out.probability = likeliest.probability;
  // If the blocks show a loss that only the machine's state may explain, nothing is decided. Nor is it where the cause
  // is not the row's largest part, since the row would contradict itself.
  const bool is_loss = likeliest.bound_by != answer_name(nothing_lost, oversubscribed);
  const bool contradicts =
      is_loss ? likeliest.bound_by != answer_name(largest_part(causes), oversubscribed) : causes.lost > out.noise_s;
  out.bound_by = 3 * likeliest.probability < 2 || contradicts ? "undecided" : likeliest.bound_by;
  return out;
}

}  // namespace gradmeter::bench
