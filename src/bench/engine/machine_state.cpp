// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/machine_state.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/format.hpp"
#include "core/statistics.hpp"
#include "hwy/cache_control.h"
#include "kernels/host/threads.hpp"
#include "runtime/clock.hpp"
#include "runtime/host/host.hpp"

namespace gradmeter::bench {
namespace {

constexpr std::size_t side = 128, copied_bytes = std::size_t{256} << 10;
constexpr std::size_t repetitions = 5;

/// While this object lives, one thread of this rank computes, so that the canary's work does not depend on the number
/// of threads that the points use.
class OneThread {
 public:
  OneThread() { kernels::set_compute_threads(1); }
  ~OneThread() { kernels::set_compute_threads(threads_before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_before_ = kernels::compute_threads();
};

void flush(std::span<const std::byte> memory) {
  for (std::size_t i = 0; i < memory.size(); i += kernels::cache_line_bytes) hwy::FlushCacheline(&memory[i]);
}

}  // namespace

double CanaryTimes::best() const {
  std::vector<double> sorted = times_;
  const auto tenth = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 10);
  std::ranges::nth_element(sorted, tenth);
  return *tenth;
}

double CanaryTimes::steadiness(std::size_t first) const {
  if (first >= times_.size()) return 1;
  return std::min(1.0, best() / core::median(std::span(times_).subspan(first)));
}

Canary::Canary(Session& s, const runtime::Communicator& c)
    : session_(s),
      c_(c),
      a_(side * side, 0.5f),
      b_(side * side, 0.25f),
      result_(side * side),
      from_(copied_bytes, std::byte{1}),
      to_(copied_bytes) {
  const OneThread one;
  product_ = kernels::make_gemm({.m = side, .n = side, .k = side});
  slowest_median();  // touches memory for the first time
}

double Canary::run_once() {
  flush(from_);
  c_.barrier();
  const double begin = runtime::host_clock();
  product_->run(a_, b_, {}, result_);
  std::memcpy(to_.data(), from_.data(), copied_bytes);
  return runtime::host_clock() - begin;
}

double Canary::slowest_median() {
  const runtime::Computing note(session_.activity(), "canary");
  std::array<double, repetitions> times{};
  for (double& t : times) t = run_once();
  return c_.max(core::median(times));
}

double Canary::round() {
  const OneThread one;
  const double time = slowest_median();
  times_.add(time);
  return time;
}

std::size_t MachineState::disturbed_of(std::size_t n) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(disturbed, n) - disturbed.begin());
}

UsedBlocks UsedBlocks::of(const MachineState& s, std::size_t turns, std::size_t taken, std::size_t used) {
  return {.used = used,
          .disturbed = used < taken ? 0 : s.disturbed_of(turns),
          .left_out = taken - used,
          .steadiness = s.steadiness};
}

void fill_blocks(const UsedBlocks& b, core::Metrics& m) {
  using core::Metric;
  m[Metric::blocks] = static_cast<std::int64_t>(b.used);
  m[Metric::disturbed_blocks] = static_cast<std::int64_t>(b.disturbed);
  m[Metric::left_out_blocks] = static_cast<std::int64_t>(b.left_out);
  m[Metric::steadiness] = b.steadiness;
}

MachineState state_of(const CanaryTimes& times, std::size_t first, std::span<const std::size_t> round_of) {
  MachineState out{.turns = round_of.size(), .steadiness = times.steadiness(first)};
  const double best = round_of.empty() ? 0 : times.best();
  for (std::size_t turn = 0; turn < round_of.size(); ++turn) {
    if (times.disturbed_at(round_of[turn], best)) out.disturbed.push_back(turn);
  }
  return out;
}

void BlockTurns::note(std::size_t blocks) {
  if (blocks > turn_of_.size()) turn_of_.push_back(turns_);
  ++turns_;
}

core::Blocks BlockTurns::undisturbed(const core::Blocks& blocks, const MachineState& s) const {
  core::Blocks out;
  for (std::size_t i = 0; i < blocks.count(); ++i) {
    if (!std::ranges::binary_search(s.disturbed, turn_of_.at(i))) out.add(blocks.block(i));
  }
  return out.count() < core::fewest_blocks ? blocks : out;
}

PeriodicWork::PeriodicWork(const runtime::Communicator& world, double share)
    : world_(world), share_(share), begin_(runtime::host_clock()) {}

bool PeriodicWork::run_if_due(const std::function<void()>& work) {
  const double begin = runtime::host_clock();
  // Rank 0 decides, since the ranks' clocks differ.
  if (!world_.broadcast_value(!begun_ || spent_s_ <= share_ * (begin - begin_))) return false;
  begun_ = true;
  work();
  spent_s_ += runtime::host_clock() - begin;
  return true;
}

MachineMonitor::MachineMonitor(Canary* canary, const runtime::Communicator& world, core::Seconds budget)
    : canary_(canary),
      world_(world),
      canary_work_(world, 0.05),
      end_(runtime::host_clock() + budget.value),
      first_round_(canary == nullptr ? 0 : canary->times().rounds()) {}

void MachineMonitor::round() {
  canary_work_.run_if_due([this] {
    if (canary_ != nullptr) canary_->round();
  });
  if (canary_ != nullptr) round_of_.push_back(canary_->times().rounds() - 1);
}

MachineState MachineMonitor::state() const {
  return canary_ == nullptr ? MachineState{} : state_of(canary_->times(), first_round_, round_of_);
}

bool MachineMonitor::is_over(std::size_t least_turns) const {
  const bool over = runtime::host_clock() > end_ && state().turns >= least_turns;
  return world_.broadcast_value(over);
}

bool MachineMonitor::has_enough(std::size_t blocks) const {
  const auto s = state();
  constexpr std::size_t most_turns = 3;  // turns for each wanted block
  const bool over = s.turns >= most_turns * blocks || runtime::host_clock() > end_;
  const bool enough = s.turns - s.disturbed.size() >= blocks || over;
  return world_.broadcast_value(enough);
}

namespace {

constexpr double least_known_s = 0.1;  // shares of shorter times are not known
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
constexpr double none =
    -std::numeric_limits<double>::infinity();  ///< the value of a rank that does not know; a maximum ignores it
constexpr std::uint64_t idle = 1;  // the event of a GPU that has nothing to do after a round; it slows nothing
constexpr std::size_t event_bits = 64;

double known_or_none(double share) {
  if (std::isfinite(share)) return share;
  return none;
}

/// Takes the delay of the rank whose threads waited longest, and its host.
void combine_delays(const runtime::Communicator& c, MachineNoise& noise) {
  const std::vector<double> delays = c.gather_value(known_or_none(noise.run_delay_share));
  const int worst = c.broadcast_value(static_cast<int>(std::ranges::max_element(delays) - delays.begin()));
  noise.run_delay_share = c.broadcast_value(noise.run_delay_share, worst);
  if (c.size() > 1 && std::isfinite(noise.run_delay_share))
    noise.busy_host = c.broadcast_text(runtime::host_name(), worst);
}

/// Takes the lowest clock, the highest power and the union of the events of all ranks, by one maximum. Ranks that know
/// nothing are ignored.
void combine_gpus(const runtime::Communicator& c, MachineNoise& noise) {
  std::vector<double> maxima(2 + event_bits, none);
  if (noise.gpu_clock_hz) maxima[0] = -*noise.gpu_clock_hz;
  if (noise.gpu_power_watts) maxima[1] = *noise.gpu_power_watts;
  for (std::size_t b = 0; noise.gpu_events && b < event_bits; ++b)
    maxima[2 + b] = (*noise.gpu_events >> b & 1) != 0 ? 1 : 0;
  c.max(maxima);
  if (maxima[0] != none) noise.gpu_clock_hz = -maxima[0];
  if (maxima[1] != none) noise.gpu_power_watts = maxima[1];
  if (maxima[2] == none) return;
  noise.gpu_events = 0;
  for (std::size_t b = 0; b < event_bits; ++b) *noise.gpu_events |= std::uint64_t{maxima[2 + b] > 0} << b;
}

}  // namespace

void NoiseSampler::end() {
  const runtime::NoiseReading r = gauge_->read();
  elapsed_s_ += r.elapsed_s;
  stolen_s_ += r.steal_share * r.elapsed_s;
  delayed_s_ += r.run_delay_s;
  involuntary_switches_ += r.involuntary_switches;
  frequency_hz_ = r.frequency_hz;
  if (gpu_) read_gpu();
}

void NoiseSampler::read_gpu() {
  const runtime::GpuState s = gpu_->read();
  gpu_clock_hz_.add(s.sm_clock_hz);
  gpu_power_watts_.add(s.power_watts);
  if (s.clock_events) gpu_events_ = gpu_events_.value_or(0) | (*s.clock_events & ~idle);
}

MachineNoise NoiseSampler::alone() const {
  const bool is_known = elapsed_s_ >= least_known_s;
  return {.steal_share = is_known ? stolen_s_ / elapsed_s_ : unknown,
          .run_delay_share = is_known ? delayed_s_ / elapsed_s_ : unknown,
          .involuntary_switches = involuntary_switches_,
          .frequency_hz = frequency_hz_,
          .gpu_clock_hz = gpu_clock_hz_.value(),
          .gpu_power_watts = gpu_power_watts_.value(),
          .gpu_events = gpu_events_};
}

MachineNoise NoiseSampler::over(const runtime::Communicator& c) const {
  MachineNoise noise = alone();
  const double stolen = c.max(known_or_none(noise.steal_share));
  noise.steal_share = stolen == none ? unknown : stolen;
  combine_delays(c, noise);
  noise.involuntary_switches = static_cast<std::int64_t>(c.sum(static_cast<double>(noise.involuntary_switches)));
  combine_gpus(c, noise);
  return noise;
}

void fill_noise(const MachineNoise& noise, core::Point& row) {
  row.metrics[core::Metric::noise_steal] = noise.steal_share;
  row.metrics[core::Metric::noise_run_delay] = noise.run_delay_share;
  if (!noise.busy_host.empty()) row.metrics[core::Metric::busy_host] = noise.busy_host;
  row.metrics[core::Metric::noise_switches] = noise.involuntary_switches;
  if (noise.frequency_hz > 0) row.metrics[core::Metric::frequency_hz] = noise.frequency_hz;
  if (noise.gpu_clock_hz) row.metrics[core::Metric::gpu_clock_hz] = *noise.gpu_clock_hz;
  if (noise.gpu_power_watts) row.metrics[core::Metric::gpu_power_watts] = *noise.gpu_power_watts;
  if (!noise.gpu_events) return;
  const auto names = runtime::clock_event_names(*noise.gpu_events);
  row.metrics[core::Metric::gpu_slowed_by] =
      names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace gradmeter::bench
