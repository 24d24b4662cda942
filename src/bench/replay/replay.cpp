// SPDX-License-Identifier: Apache-2.0
#include "bench/replay/replay.hpp"

#include <algorithm>

#include "bench/engine/machine_state.hpp"
#include "bench/engine/rounds.hpp"
#include "bench/engine/sweep.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/fabric/decorators/probe.hpp"
#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "dataparallel/replay/replay.hpp"
#include "runtime/threads/backoff.hpp"

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using dataparallel::StepTrace;

/// The parts of a rank's mean step [s].
struct ReplayedParts {
  double step = 0, compute = 0, communication = 0, exposed = 0, overlap = 0;
};

/// An upper bound for the buffers of a rank [bytes]; a double, since the sizes in a trace may be too large for a whole
/// number.
double buffer_bytes(const StepTrace& t) {
  std::vector<double> longest;
  for (const auto& s : t.steps) {
    longest.resize(std::max(longest.size(), s.calls.size()));
    for (std::size_t i = 0; i < s.calls.size(); ++i)
      longest[i] = std::max(longest[i], static_cast<double>(s.calls[i].bytes));
  }
  double sum = 0;
  for (const double bytes : longest) sum += bytes + dataparallel::memory_page_bytes;
  return sum;
}

dataparallel::RankFabricOptions replay_fabric_options(const Session& s, const ReplayOptions& o) {
  std::size_t calls = 0, longest = 0;
  for (const auto& step : o.trace.steps) {
    calls = std::max(calls, step.calls.size());
    for (const auto& c : step.calls) longest = std::max<std::size_t>(longest, c.bytes);
  }
  return {.exchange = {.max_bytes = longest},
          .progress = o.progress_thread ? dataparallel::ProgressMode::thread : dataparallel::ProgressMode::on_wait,
          .spin_policy =
              runtime::spin_policy_for(o.busy_threads() * s.ranks_per_node(s.world().size()), s.cores_per_node()),
          .memory_bytes =
              dataparallel::replay_floats(o.trace) * sizeof(float) + (calls + 1) * dataparallel::memory_page_bytes,
          .uses_reduce_scatter = true,
          .groups = 1};
}

class ReplayBenchmark {
 public:
  ReplayBenchmark(Session& s, const ReplayOptions& o)
      : session_(s),
        communicator_(s.world()),
        options_(o),
        fabric_(communicator_, replay_fabric_options(s, o), s.activity()),
        probe_(fabric_),
        replay_(probe_, o.trace, o.computation, o.is_over),
        rounds_(s, communicator_, {.rule = o.rule, .warmup_min = 2},
                [this](std::size_t n, bool keep) { return run(n, keep); }) {}

  void measure(core::Point& row) {
    check(row);
    if (row.status != core::Status::ok) return;
    noise_.begin();
    rounds_.warm_up();
    while (rounds_.round() == core::Stop::none) {
    }
    session_.stop_if_interrupted(communicator_);  // a signal may have cut the last pass short
    noise_.end();
    check(row);
    fill(row);
  }

 private:
  void check(core::Point& row) {
    const double wrong = communicator_.sum(static_cast<double>(replay_.count_wrong_elements(options_.seed)));
    row.metrics[Metric::wrong] = static_cast<std::int64_t>(wrong);
    if (wrong > 0) refuse(row, core::Status::wrong, fmt::format("{:.0f} elements of its collectives are wrong", wrong));
  }

  /// Makes passes over the whole trace, its steps back to back. Returns for each pass the time of its mean step on the
  /// slowest rank [s].
  std::vector<double> run(std::size_t passes, bool keep) {
    std::vector<double> mine(passes);
    for (double& t : mine) {
      communicator_.barrier();
      ReplayedParts sum;
      for (std::size_t i = 0; i < replay_.steps(); ++i) {
        probe_.begin_step();
        replay_.step(i);
        const auto d = dataparallel::decompose(probe_.end_step(), {});
        sum.step += d.step, sum.compute += d.compute, sum.communication += d.communication;
        sum.exposed += d.exposed, sum.overlap += d.overlap;
      }
      const auto n = static_cast<double>(replay_.steps());
      t = sum.step / n;
      if (keep) parts_.push_back({t, sum.compute / n, sum.communication / n, sum.exposed / n, sum.overlap / n});
    }
    if (keep) times_.add(mine);
    communicator_.max(mine);
    return mine;
  }

  /// The parts of the sample with the median step. All are from this one sample, so that they add up.
  ReplayedParts median_sample() const {
    std::vector<ReplayedParts> sorted = parts_;
    std::ranges::sort(sorted, {}, &ReplayedParts::step);
    return sorted.empty() ? ReplayedParts{} : sorted[sorted.size() / 2];
  }

  void fill(core::Point& row) {
    auto& m = row.metrics;
    std::vector<double> medians;
    const core::Blocks slowest = slowest_blocks(communicator_, times_, medians);
    core::Summary time = core::summarise(slowest);
    time.stop = rounds_.stop();
    m[Metric::time_s] = time;
    row.raw_times_s.assign(slowest.samples().begin(), slowest.samples().end());
    const auto samples = communicator_.all_gather_value(median_sample());
    const auto slowest_parts = *std::ranges::max_element(samples, {}, &ReplayedParts::step);
    m[Metric::compute_s] = slowest_parts.compute;
    m[Metric::comm_s] = slowest_parts.communication;
    m[Metric::exposed_union_s] = slowest_parts.exposed;
    m[Metric::overlap_s] = slowest_parts.overlap;
    m[Metric::warmup_s] = rounds_.warmup_s();
    m[Metric::warmup_samples] = static_cast<std::int64_t>(rounds_.warmup_iterations());
    m[Metric::progress_threads] = std::int64_t{options_.progress_thread ? 1 : 0};
    m[Metric::oversubscribed] =
        session_.ranks_per_node(communicator_.size()) * options_.busy_threads() > session_.cores_per_node();
    row.factors[Factor::transport] = std::string(runtime::name(fabric_.transport()));
    fill_noise(noise_.over(communicator_), row);
    fill_medians(
        medians, [this](int rank) { return session_.host_of(rank); }, m);
  }

  Session& session_;
  const runtime::Communicator& communicator_;
  const ReplayOptions& options_;
  dataparallel::RankFabric fabric_;
  dataparallel::Probe probe_;
  dataparallel::Replay replay_;
  NoiseSampler noise_;
  core::Blocks times_;                ///< the times of this rank
  std::vector<ReplayedParts> parts_;  ///< the parts of each sample of this rank
  Rounds rounds_;
};

void fill_trace(const StepTrace& t, core::Point& row) {
  std::vector<double> seconds;
  for (const auto& s : t.steps) seconds.push_back(s.seconds);
  // The mean, since a sample is a pass over all steps.
  double sum = 0;
  for (const double s : seconds) sum += s;
  if (t.timed) row.metrics[Metric::baseline_time_s] = sum / static_cast<double>(seconds.size());
  if (t.ranks > 0) row.metrics[Metric::baseline_ranks] = t.ranks;
}

}  // namespace

core::Point run_replay(Session& s, const ReplayOptions& o) {
  if (const auto why = dataparallel::replay_refusal(o.trace); !why.empty()) throw core::UsageError(why);
  core::Point row;
  row.experiment = "replay";
  fill_ranks(s.map(), row.factors);
  row.factors[Factor::problem] = dataparallel::trace_text(o.trace);
  row.factors[Factor::device] = std::string(o.computation == dataparallel::ReplayedComputation::sleep ? "none" : "cpu");
  row.factors[Factor::algorithm] = std::string("ring");
  row.factors[Factor::overlap] = std::string(o.progress_thread ? "bucketed" : "none");
  fill_trace(o.trace, row);
  const double needs = buffer_bytes(o.trace) * s.ranks_per_node(s.world().size());
  if (needs > static_cast<double>(s.free_memory_per_node())) {
    refuse(row, core::Status::skipped,
           fmt::format("needs {:.3g} GiB of memory on a node where {:.3g} GiB are free", needs * 0x1p-30,
                       static_cast<double>(s.free_memory_per_node()) * 0x1p-30));
    return row;
  }
  ReplayBenchmark(s, o).measure(row);
  return row;
}

}  // namespace gradmeter::bench
