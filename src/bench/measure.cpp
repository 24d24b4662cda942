#include "bench/measure.hpp"

#include <algorithm>
#include <cmath>

namespace gradmeter::bench {
namespace {

using dataparallel::Decomposition;
using dataparallel::StepRecord;

class StepLoop {
 public:
  StepLoop(Session& session, const runtime::Communicator& c, runtime::ClockOffset offset, const MeasureOptions& o,
           const std::function<const StepRecord&()>& step)
      : session_(session), c_(c), offset_(offset), options_(o), step_(step), pacer_(o.cadence, c, offset) {}

  Measurement run() {
    warm_up();
    const double begin = runtime::host_clock();
    std::vector<double> times;
    for (;;) {
      run_block(steps_in_block(), result_.samples);
      times = result_.times();
      const auto elapsed = core::Seconds{runtime::host_clock() - begin};
      // One rank decides: the others' clocks may differ in the last digit.
      const auto stop = times.empty() ? core::Stop::none : options_.rule.decide(times, elapsed);
      result_.stop = static_cast<core::Stop>(c_.broadcast_value(static_cast<int>(stop)));
      session_.stop_if_interrupted(c_);
      if (result_.stop != core::Stop::none) break;
    }
    check_clocks();
    return std::move(result_);
  }

 private:
  void warm_up() {
    const double begin = runtime::host_clock();
    double before = 0;
    for (bool settled = false; !settled;) {
      std::vector<StepSample> group;
      run_block(result_.warmup_steps == 0 ? 1 : std::max<std::size_t>(2, options_.warmup_min / 2), group);
      result_.warmup_steps += group.size();
      last_median_ = median_step(group);
      const bool still = before > 0 && std::fabs(last_median_ - before) < 0.05 * before;
      const bool over = runtime::host_clock() - begin > options_.warmup_budget.value;
      const bool enough = result_.warmup_steps >= options_.warmup_min && still;
      settled = c_.broadcast_value(enough || over);
      before = last_median_;
      session_.stop_if_interrupted(c_);
    }
    result_.warmup_s = runtime::host_clock() - begin;
  }

  static double median_step(const std::vector<StepSample>& group) {
    std::vector<double> times;
    for (const auto& s : group) times.push_back(s.slowest.step);
    return times.empty() ? 0 : core::median(times);
  }

  /// About 50 ms between decisions, which cost a few messages.
  std::size_t steps_in_block() const {
    const double wanted = last_median_ > 0 ? std::ceil(0.05 / last_median_) : 1;
    return c_.broadcast_value(static_cast<std::size_t>(std::clamp(wanted, 1.0, 50.0)));
  }

  void run_block(std::size_t steps, std::vector<StepSample>& out) {
    std::vector<StepRecord> records;
    std::vector<char> in_time;
    records.reserve(steps);
    pacer_.open(std::max(1.5 * last_median_, 1e-4));
    for (std::size_t i = 0; i < steps; ++i) {
      in_time.push_back(pacer_.next());
      records.push_back(step_());
    }
    const auto starts = c_.all_gather(std::span<const double>(aligned_starts(records)));
    const auto on_time = c_.all_gather(std::span<const char>(in_time));
    const std::size_t calls = records.front().calls.size();
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

  std::vector<double> aligned_starts(const std::vector<StepRecord>& records) const {
    std::vector<double> out;
    for (const auto& r : records) {
      for (const auto& call : r.calls) out.push_back(call.completion.started + offset_.offset_s);
    }
    return out;
  }

  /// When the last rank started each call of one step, in this rank's clock.
  std::vector<double> last_starts(const std::vector<double>& all, std::size_t at, std::size_t calls,
                                  std::size_t per_rank) const {
    std::vector<double> last(calls, -1e300);
    for (int r = 0; r < c_.size(); ++r) {
      for (std::size_t k = 0; k < calls; ++k) {
        last[k] = std::max(last[k], all[static_cast<std::size_t>(r) * per_rank + at + k] - offset_.offset_s);
      }
    }
    return last;
  }

  StepSample combine(const Decomposition& mine) const {
    const auto all = c_.all_gather_value(mine);
    StepSample s{.slowest = *std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
                   return a.step < b.step;
                 })};
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

  void check_clocks() {
    const double doubt = c_.max(offset_.uncertainty_s);
    result_.skew_known = doubt == 0 || doubt < result_.median_of(&Decomposition::skew);
  }

  Session& session_;
  const runtime::Communicator& c_;
  runtime::ClockOffset offset_;
  const MeasureOptions& options_;
  const std::function<const StepRecord&()>& step_;
  runtime::Pacer pacer_;
  double last_median_ = 0;
  Measurement result_;
};

}  // namespace

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

Measurement measure_steps(Session& session, const runtime::Communicator& c, runtime::ClockOffset offset,
                          const MeasureOptions& o, const std::function<const StepRecord&()>& step) {
  return StepLoop(session, c, offset, o, step).run();
}

}  // namespace gradmeter::bench
