#include "bench/measure.hpp"

#include <algorithm>
#include <cmath>

namespace gradmeter::bench {
namespace {

using dataparallel::Decomposition;
using dataparallel::StepRecord;

constexpr double never = -1e300;

/// The time in which ranks that go their own pace take one step each, on average.
double together(const std::vector<Decomposition>& all) {
  double steps_per_second = 0, ranks = 0;
  for (const auto& d : all) {
    if (d.step <= 0) continue;
    steps_per_second += 1 / d.step;
    ++ranks;
  }
  return steps_per_second > 0 ? ranks / steps_per_second : 0;
}

}  // namespace

StepMeter::StepMeter(Session& session, const runtime::Communicator& c, runtime::ClockOffset offset,
                     const MeasureOptions& o, Source source)
    : c_(c),
      offset_(offset),
      source_(std::move(source)),
      pacer_(o.cadence, c, offset),
      rounds_(session, c, {.rule = o.rule, .warmup_min = o.warmup_min, .warmup_budget = o.warmup_budget},
              [this](std::size_t steps, bool keep) { return run_block(steps, keep); }) {}

void StepMeter::warm_up() {
  rounds_.warm_up();
  result_.warmup_s = rounds_.warmup_s();
  result_.warmup_steps = rounds_.warmup_iterations();
  result_.dropped = 0;
}

core::Stop StepMeter::round() {
  result_.stop = rounds_.round();
  const double doubt = c_.max(offset_.uncertainty_s);
  result_.skew_known = doubt == 0 || doubt < result_.median_of(&Decomposition::skew);
  return result_.stop;
}

std::vector<double> StepMeter::run_block(std::size_t steps, bool keep) {
  std::vector<StepRecord> records;
  std::vector<char> in_time;
  records.reserve(steps);
  pacer_.open(std::max(1.5 * rounds_.last_median(), 1e-4));
  source_.begin_block();
  for (std::size_t i = 0; i < steps; ++i) {
    in_time.push_back(pacer_.next() ? 1 : 0);
    records.push_back(source_.step());
  }
  source_.end_block();
  std::vector<StepSample> counted;
  judge(records, in_time, counted);
  std::vector<double> times;
  for (const auto& s : counted) times.push_back(s.slowest.step);
  if (keep) result_.samples.insert(result_.samples.end(), counted.begin(), counted.end());
  return times;
}

void StepMeter::judge(const std::vector<StepRecord>& records, const std::vector<char>& in_time,
                      std::vector<StepSample>& out) {
  // Where ranks go their own pace, a call has no last starter.
  const std::size_t steps = records.size(), calls = source_.lock_step ? most_calls(records) : 0;
  const auto starts = c_.all_gather(std::span<const double>(aligned_starts(records, calls)));
  const auto on_time = c_.all_gather(std::span<const char>(in_time));
  for (std::size_t i = 0; i < steps; ++i) {
    const auto sample = combine(decompose(records[i], last_starts(starts, i * calls, calls, steps * calls)));
    bool counts = true;
    for (int r = 0; r < c_.size(); ++r) counts &= on_time[static_cast<std::size_t>(r) * steps + i] != 0;
    if (counts) {
      out.push_back(sample);
    } else {
      ++result_.dropped;
    }
  }
}

/// Some strategies communicate every so many steps, and not all ranks alike.
std::size_t StepMeter::most_calls(const std::vector<StepRecord>& records) const {
  std::size_t most = 0;
  for (const auto& r : records) most = std::max(most, r.calls.size());
  return static_cast<std::size_t>(c_.max(static_cast<double>(most)));
}

/// Of `calls` calls a step: what a step has not, never starts.
std::vector<double> StepMeter::aligned_starts(const std::vector<StepRecord>& records, std::size_t calls) const {
  std::vector<double> out(records.size() * calls, never);
  for (std::size_t i = 0; i < records.size(); ++i) {
    for (std::size_t k = 0; k < std::min(calls, records[i].calls.size()); ++k) {
      out[i * calls + k] = records[i].calls[k].completion.started + offset_.offset_s;
    }
  }
  return out;
}

/// When the last rank started each call of one step, in this rank's clock.
std::vector<double> StepMeter::last_starts(const std::vector<double>& all, std::size_t at, std::size_t calls,
                                           std::size_t per_rank) const {
  std::vector<double> last(calls, never);
  for (int r = 0; r < c_.size(); ++r) {
    for (std::size_t k = 0; k < calls; ++k) {
      last[k] = std::max(last[k], all[static_cast<std::size_t>(r) * per_rank + at + k] - offset_.offset_s);
    }
  }
  return last;
}

StepSample StepMeter::combine(const Decomposition& mine) const {
  const auto all = c_.all_gather_value(mine);
  StepSample s{.slowest = *std::max_element(all.begin(), all.end(),
                                            [](const auto& a, const auto& b) { return a.step < b.step; })};
  if (!source_.lock_step) s.slowest.step = together(all);
  for (const auto& d : all) {
    s.bytes_sent_max = std::max(s.bytes_sent_max, d.bytes_sent);
    s.bytes_sent_total += d.bytes_sent;
    s.bytes_between_nodes += d.bytes_between_nodes;
    s.bytes_due_total += d.bytes_due;
    s.bytes_known &= d.bytes_known;
    s.bytes_right &= !d.bytes_known || d.bytes_sent == d.bytes_due;
  }
  return s;
}

std::vector<double> Measurement::times() const {
  std::vector<double> out;
  for (const auto& s : samples) out.push_back(s.slowest.step);
  return out;
}

double Measurement::median_of(double Decomposition::*part) const {
  std::vector<double> out;
  for (const auto& s : samples) out.push_back(s.slowest.*part);
  return out.empty() ? 0 : core::median(out);
}

}  // namespace gradmeter::bench
