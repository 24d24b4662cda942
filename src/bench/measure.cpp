#include "bench/measure.hpp"

#include <algorithm>
#include <cmath>

namespace gradmeter::bench {
namespace {

using dataparallel::Decomposition;
using dataparallel::StepRecord;

double median_step(const std::vector<StepSample>& group) {
  std::vector<double> times;
  for (const auto& s : group) times.push_back(s.slowest.step);
  return times.empty() ? 0 : core::median(times);
}

}  // namespace

StepMeter::StepMeter(Session& session, const runtime::Communicator& c, runtime::ClockOffset offset,
                     const MeasureOptions& o, Step step)
    : session_(session), c_(c), offset_(offset), options_(o), step_(std::move(step)), pacer_(o.cadence, c, offset) {}

void StepMeter::warm_up() {
  const double begin = runtime::host_clock();
  double before = 0;
  for (bool settled = false; !settled;) {
    std::vector<StepSample> group;
    run_block(result_.warmup_steps == 0 ? 1 : std::max<std::size_t>(2, options_.warmup_min / 2), group);
    result_.warmup_steps += group.size();
    last_median_ = median_step(group);
    const bool still = before > 0 && std::fabs(last_median_ - before) < 0.05 * before;
    const bool over = runtime::host_clock() - begin > options_.warmup_budget.value;
    settled = c_.broadcast_value((result_.warmup_steps >= options_.warmup_min && still) || over);
    before = last_median_;
    session_.stop_if_interrupted(c_);
  }
  result_.warmup_s = runtime::host_clock() - begin;
  result_.dropped = 0;
}

core::Stop StepMeter::round() {
  const double begin = runtime::host_clock();
  std::vector<StepSample> discarded;
  run_block(2, discarded);
  run_block(steps_in_block(), result_.samples);
  measured_s_ += runtime::host_clock() - begin;
  const auto times = result_.times();
  if (!times.empty()) last_median_ = core::median(times);
  // A window that nobody meets would never end: its budget still does.
  const bool none_in_time = times.empty() && measured_s_ > options_.rule.budget.value;
  const auto stop = none_in_time    ? core::Stop::budget
                    : times.empty() ? core::Stop::none
                                    : options_.rule.decide(times, core::Seconds{measured_s_});
  // One rank decides: the others' clocks may differ in the last digit.
  result_.stop = static_cast<core::Stop>(c_.broadcast_value(static_cast<int>(stop)));
  const double doubt = c_.max(offset_.uncertainty_s);
  result_.skew_known = doubt == 0 || doubt < result_.median_of(&Decomposition::skew);
  session_.stop_if_interrupted(c_);
  return result_.stop;
}

std::size_t StepMeter::steps_in_block() const {
  const double wanted = last_median_ > 0 ? std::ceil(0.1 / last_median_) : 1;
  return c_.broadcast_value(static_cast<std::size_t>(std::clamp(wanted, 1.0, 100.0)));
}

void StepMeter::run_block(std::size_t steps, std::vector<StepSample>& out) {
  std::vector<StepRecord> records;
  std::vector<char> in_time;
  records.reserve(steps);
  pacer_.open(std::max(1.5 * last_median_, 1e-4));
  for (std::size_t i = 0; i < steps; ++i) {
    in_time.push_back(pacer_.next() ? 1 : 0);
    records.push_back(step_());
  }
  judge(records, in_time, out);
}

void StepMeter::judge(const std::vector<StepRecord>& records, const std::vector<char>& in_time,
                      std::vector<StepSample>& out) {
  const std::size_t steps = records.size(), calls = records.front().calls.size();
  const auto starts = c_.all_gather(std::span<const double>(aligned_starts(records)));
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

std::vector<double> StepMeter::aligned_starts(const std::vector<StepRecord>& records) const {
  std::vector<double> out;
  for (const auto& r : records) {
    for (const auto& call : r.calls) out.push_back(call.completion.started + offset_.offset_s);
  }
  return out;
}

/// When the last rank started each call of one step, in this rank's clock.
std::vector<double> StepMeter::last_starts(const std::vector<double>& all, std::size_t at, std::size_t calls,
                                           std::size_t per_rank) const {
  std::vector<double> last(calls, -1e300);
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
