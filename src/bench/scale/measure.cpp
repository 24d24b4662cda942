// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/measure.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "core/random.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::CallTimes;
using dataparallel::Decomposition;
using dataparallel::StepRecord;

constexpr double never = -1e300;

StepParts parts_of(const Decomposition& d, bool lock_step) {
  return {.compute = d.compute,
          .communication = d.communication,
          .exposed = d.exposed,
          .overlap = d.overlap,
          .wait = lock_step ? d.skew : d.waited,
          .handling = lock_step ? 0 : d.handled,
          .encode = d.encode,
          .decode = d.decode,
          .update = d.update};
}

constexpr std::array all_parts{&StepParts::compute, &StepParts::communication, &StepParts::exposed,
                               &StepParts::overlap, &StepParts::wait,          &StepParts::handling,
                               &StepParts::encode,  &StepParts::decode,        &StepParts::update};

double median_of(std::span<const Decomposition> samples, double Decomposition::*part) {
  std::vector<double> values;
  for (const auto& s : samples) values.push_back(s.*part);
  return values.empty() ? 0 : core::median(values);
}

StepParts median_parts(std::span<const StepParts> samples) {
  StepParts out;
  for (const auto part : all_parts) {
    std::vector<double> values;
    for (const auto& s : samples) values.push_back(s.*part);
    out.*part = values.empty() ? 0 : core::median(values);
  }
  return out;
}

/// The median times of each call; empty where the samples have different numbers of calls.
std::vector<CallTimes> median_calls(std::span<const Decomposition> samples) {
  std::vector<CallTimes> out(samples.front().calls.size());
  for (const Decomposition& d : samples)
    if (d.calls.size() != out.size()) return {};
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (const auto time :
         {&CallTimes::posted, &CallTimes::started, &CallTimes::finished, &CallTimes::transfer, &CallTimes::exposed}) {
      std::vector<double> values;
      for (const Decomposition& d : samples) values.push_back(d.calls[i].*time);
      out[i].*time = core::median(values);
    }
  }
  return out;
}

std::vector<double> median_ready(std::span<const Decomposition> samples) {
  std::vector<double> out(samples.front().ready.size()), values;
  for (std::size_t i = 0; i < out.size(); ++i) {
    values.clear();
    for (const Decomposition& d : samples) values.push_back(d.ready.at(i));
    out[i] = core::median(values);
  }
  return out;
}

/// The kernels of the steps. They are what the fabric gave to its queue; work in exchanges is no kernel.
std::vector<KernelTimes> kernels_of(std::span<const StepRecord> steps) {
  std::vector<KernelTimes> out;
  const auto share = 1 / static_cast<double>(steps.size());
  for (const StepRecord& step : steps) {
    for (const auto& c : step.computations) {
      if (c.is_message_handling) continue;
      auto at = std::ranges::find(out, c.label, &KernelTimes::name);
      if (at == out.end()) at = out.insert(out.end(), {.name = c.label});
      at->count += share;
      at->seconds += share * c.when.length();
    }
  }
  return out;
}

/// The mean of a sample's steps; bytes are added up. If there are several steps, the result has no calls.
Decomposition mean(std::span<const Decomposition> steps) {
  if (steps.size() == 1) return steps.front();
  Decomposition sum;
  const auto n = static_cast<double>(steps.size());
  for (const auto& d : steps) {
    for (const auto part :
         {&Decomposition::step, &Decomposition::compute, &Decomposition::communication, &Decomposition::exposed,
          &Decomposition::overlap, &Decomposition::skew, &Decomposition::encode, &Decomposition::decode,
          &Decomposition::waited, &Decomposition::handled, &Decomposition::update}) {
      sum.*part += d.*part / n;
    }
    sum.bytes_known &= d.bytes_known;
    sum.bytes_sent += d.bytes_sent;
    sum.bytes_between_nodes += d.bytes_between_nodes;
    sum.bytes_required += d.bytes_required;
  }
  return sum;
}

}  // namespace

/// This rank's block: `period` steps for each sample, in order.
struct StepMeter::BlockSteps {
  std::vector<StepRecord> steps;  ///< known when the block has ended, so that no step waits for its record
  std::vector<bool> kept;         ///< for each step that was made: whether it is one of `steps`
  std::vector<double> late;       ///< for each sample: not 0 where this rank missed its window
  double check_s = 0;             ///< time of the verified steps [s]
};

StepMeter::StepMeter(Session& session, const runtime::Communicator& c, runtime::SharedClock& clock,
                     const MeasureOptions& o, Source source)
    : communicator_(c),
      clock_(clock),
      source_(std::move(source)),
      pacer_(o.cadence, c, clock),
      // Signals are handled between turns by all ranks of the world, those that take no part included.
      rounds_({.agree = peers_of(session, c).agree, .stop_if_interrupted = [] {}},
              {.rule = o.rule, .warmup_min = o.warmup_min, .warmup_budget = o.warmup_budget},
              [this](std::size_t samples, bool keep) { return run_block(samples, keep); }) {}

void StepMeter::warm_up() {
  rounds_.warm_up();
  result_.warmup_s = rounds_.warmup_s();
  result_.warmup_samples = rounds_.warmup_iterations();
  result_.dropped = 0;
}

core::Stop StepMeter::round() {
  result_.stop = rounds_.round();
  if (result_.stop != core::Stop::none && !std::exchange(verified_end_, true)) {
    // This finds faults that begin after the last check in a block, even where a rebuilt training is right at first.
    verifies_end_ = true;
    run_block(0, false);
    verifies_end_ = false;
  }
  const double uncertainty = clock_.pair_uncertainty();
  const double wait = result_.blocks.empty() ? 0 : communicator_.broadcast_value(result_.blocks.back().parts.wait);
  // Without lock step, a wait is read from one rank's own clock.
  result_.wait_known = !source_.lock_step || uncertainty == 0 || uncertainty < wait;
  return result_.stop;
}

/// Decides whether a step of the next block is verified. The first block has one, and later blocks as long as checks
/// take at most a quarter of all time. (In a block of one long step, the check takes half of that block's time.)
bool StepMeter::may_verify() const {
  constexpr double most = 0.25;
  return communicator_.broadcast_value(checks_s_ <= most * blocks_s_);  // rank 0 decides, since clocks differ
}

std::vector<double> StepMeter::run_block(std::size_t samples, bool keep) {
  // A check costs a step's time, so only kept blocks have one; its place is random, so that it cannot be predicted.
  std::optional<std::size_t> verified;
  const double begin = runtime::host_clock();
  if (keep) {
    const auto place = core::Random(source_.seed, 0).below(blocks_begun_++, samples + 1);
    if (may_verify()) verified = place;
  }
  if (verifies_end_) verified = samples;
  pacer_.open(std::max(1.5 * rounds_.last_median() * static_cast<double>(source_.period), 1e-4));
  source_.begin_block();
  BlockSteps taken = take(samples, verified);
  source_.end_block();
  if (verified) {
    ++result_.verified;
    const double judged = runtime::host_clock();
    if (auto fault = source_.take_fault(); result_.fault.empty()) result_.fault = std::move(fault);
    checks_s_ += taken.check_s + runtime::host_clock() - judged;
  }
  if (keep) blocks_s_ += runtime::host_clock() - begin;
  auto own = decompose_all(taken);
  auto late = taken.late;
  communicator_.max(late);
  std::vector<double> times;
  for (std::size_t i = 0, kept = 0; i < late.size(); ++i) {
    if (late[i] > 0) {
      ++result_.dropped;
      taken.late[i] = late[i];
      continue;
    }
    own[kept++] = own[i];
    times.push_back(own[kept - 1].step);
  }
  own.resize(times.size());
  if (times.empty()) return times;
  StepBlock block = source_.lock_step ? lock_step_block(own) : own_pace_block(own, times);
  if (source_.lock_step) communicator_.max(times);
  block.step = core::block_median(times);
  block.round = blocks_begun_ - 1;
  if (!keep) return times;
  block.kernels = kernels_of(taken.steps);
  keep_typical(taken, times, block);
  result_.times.add(times);
  result_.blocks.push_back(std::move(block));
  result_.bytes_right &= communicator_.all(std::all_of(own.begin(), own.end(), [](const Decomposition& d) {
    return !d.bytes_known || d.bytes_sent == d.bytes_required;
  }));
  return times;
}

StepMeter::BlockSteps StepMeter::take(std::size_t samples, std::optional<std::size_t> verified) {
  BlockSteps t;
  t.kept.reserve((samples + 2) * source_.period);
  // Without lock step, a step may wait for what the step before has begun, such as an average, or servers that read the
  // changes. When a block begins, nothing is under way to wait for, so its first sample does not count.
  if (!source_.lock_step) take_sample(t, false);
  for (std::size_t i = 0; i <= samples; ++i) {
    if (verified == i) {
      source_.verify_next();
      const double begin = runtime::host_clock();
      take_sample(t, false);
      t.check_s = runtime::host_clock() - begin;
    }
    if (i < samples) take_sample(t, true);
  }
  auto records = source_.take_records();
  if (records.size() != t.kept.size()) throw std::logic_error("a block has other steps than it made");
  t.steps.reserve(samples * source_.period);
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (t.kept[i]) t.steps.push_back(std::move(records[i]));
  }
  return t;
}

void StepMeter::take_sample(BlockSteps& t, bool kept) {
  double late = 0;
  for (std::size_t k = 0; k < source_.period; ++k) {
    source_.prepare();
    if (!pacer_.next()) late = 1;
    source_.step();
    t.kept.push_back(kept);
  }
  if (kept) t.late.push_back(late);
}

std::size_t sample_next_to(double middle, std::span<const double> late, std::span<const double> times) {
  const auto distance = [middle](double time) { return std::abs(time - middle); };
  auto before = std::ranges::min_element(times, {}, distance) - times.begin();
  std::size_t sample = 0;
  while (late[sample] > 0 || before-- > 0) ++sample;
  return sample;
}

/// Keeps the record of the sample nearest to the block's median. times: those of the samples that are not late, the
/// same on all ranks.
void StepMeter::keep_typical(BlockSteps& taken, std::span<const double> times, StepBlock& b) const {
  if (!source_.lock_step || source_.period != 1) return;
  b.typical = std::move(taken.steps[sample_next_to(b.step, taken.late, times)]);
  b.typical.waits.clear();  // the calls that own their labels end with the training, which may be built anew
  b.has_typical = true;
}

/// The time at which the last rank started each call, by this rank's clock. Calls of a step are matched by their
/// number. Some strategies communicate only every few steps, and not on all ranks alike: a missing call has time
/// `never`.
std::vector<double> StepMeter::last_starts(const BlockSteps& t) const {
  if (!source_.lock_step) return {};  // without lock step, a call has no last starter
  std::size_t calls = 0;
  for (const auto& r : t.steps) calls = std::max(calls, r.calls.size());
  calls = static_cast<std::size_t>(communicator_.max(static_cast<double>(calls)));
  std::vector<double> starts(t.steps.size() * calls, never);
  for (std::size_t i = 0; i < t.steps.size(); ++i) {
    for (std::size_t k = 0; k < t.steps[i].calls.size(); ++k) {
      starts[i * calls + k] = clock_.model().reference(t.steps[i].calls[k].completion.started);
    }
  }
  communicator_.max(starts);
  for (double& s : starts) s = clock_.model().local(s);
  return starts;
}

std::vector<Decomposition> StepMeter::decompose_all(const BlockSteps& t) const {
  const auto starts = last_starts(t);
  const std::size_t calls = t.steps.empty() ? 0 : starts.size() / t.steps.size();
  // A call that outlasts steps, as a strategy that averages in the background makes them, belongs to the step in which
  // it is done. In the others it was under way all the same.
  std::vector<std::vector<dataparallel::Interval>> later_calls(t.steps.size());
  for (std::size_t i = 1; i < t.steps.size(); ++i) {
    for (const auto& call : t.steps[i].calls) {
      for (std::size_t k = i; k-- > 0 && t.steps[k].step.end > call.completion.started;)
        later_calls[k].push_back({call.completion.started, call.completion.finished});
    }
  }
  std::vector<Decomposition> steps;
  for (std::size_t i = 0; i < t.steps.size(); ++i) {
    steps.push_back(decompose(t.steps[i], std::span(starts).subspan(i * calls, calls), later_calls[i]));
  }
  std::vector<Decomposition> samples;
  for (std::size_t i = 0; i < steps.size(); i += source_.period) {
    samples.push_back(mean(std::span(steps).subspan(i, source_.period)));
  }
  return samples;
}

/// Gathers each rank's own figures on the first rank.
void StepMeter::gather_rank_figures(std::span<const Decomposition> own, StepBlock& b) const {
  struct OwnFigures {
    double compute, wait, step;
  };
  const auto wait = source_.lock_step ? &Decomposition::skew : &Decomposition::waited;
  const auto times = communicator_.gather_value(
      OwnFigures{median_of(own, &Decomposition::compute), median_of(own, wait), median_of(own, &Decomposition::step)});
  for (const auto& m : times) {
    b.compute.push_back(m.compute);
    b.wait.push_back(m.wait);
    b.step_by_rank.push_back(m.step);
  }
  b.longest_rank = static_cast<int>(std::max_element(b.compute.begin(), b.compute.end()) - b.compute.begin());
  b.longest_rank = communicator_.broadcast_value(b.longest_rank);
}

StepBlock StepMeter::lock_step_block(std::span<const Decomposition> own) const {
  StepBlock b;
  gather_rank_figures(own, b);
  std::vector<StepParts> mine;
  for (const auto& d : own) mine.push_back(parts_of(d, true));
  b.parts = communicator_.broadcast_value(median_parts(mine), b.longest_rank);
  if (!source_.per_call) return b;
  b.calls = median_calls(own);
  b.calls.resize(communicator_.broadcast_value(b.calls.size(), b.longest_rank));
  communicator_.broadcast<CallTimes>(b.calls, b.longest_rank);
  b.ready = median_ready(own);
  communicator_.max(b.ready);
  return b;
}

/// Averages the i-th samples of all workers with weights of 1/step. The mean of the steps is then their harmonic mean,
/// and the means of the parts add up to it.
StepBlock StepMeter::own_pace_block(std::span<const Decomposition> own, std::vector<double>& times) const {
  StepBlock b;
  gather_rank_figures(own, b);
  constexpr std::size_t fields = 2 + all_parts.size();
  std::vector<double> sums(own.size() * fields, 0.0);
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i].step <= 0) continue;
    const double weight = 1 / own[i].step;
    const StepParts parts = parts_of(own[i], false);
    double* at = &sums[i * fields];
    *at++ = 1;
    *at++ = weight;
    for (const auto part : all_parts) *at++ = weight * parts.*part;
  }
  communicator_.sum(sums);
  std::vector<StepParts> samples;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double* at = &sums[i * fields];
    const double workers = *at++, weight = *at++;
    times[i] = weight > 0 ? workers / weight : 0;
    StepParts& parts = samples.emplace_back();
    for (const auto part : all_parts) parts.*part = weight > 0 ? *at++ / weight : 0;
  }
  b.parts = median_parts(samples);
  return b;
}

Measurement Measurement::without(std::span<const std::size_t> rounds) const {
  Measurement kept = *this;
  kept.times = {};
  kept.blocks.clear();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (std::binary_search(rounds.begin(), rounds.end(), blocks[i].round)) continue;
    kept.times.add(times.block(i));
    kept.blocks.push_back(blocks[i]);
  }
  return kept;
}

}  // namespace gradmeter::bench
