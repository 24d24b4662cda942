#include "bench/engine/noise_sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/format.hpp"
#include "runtime/host/host.hpp"

namespace gradmeter::bench {
namespace {

constexpr double least_known_s = 0.1;
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
constexpr double none = -std::numeric_limits<double>::infinity();  ///< of a rank that does not know, below a maximum
constexpr std::uint64_t idle = 1;  // of a GPU that has nothing to do behind a round; it slows nothing
constexpr std::size_t event_bits = 64;

double known_or_none(double share) {
  if (std::isfinite(share)) return share;
  return none;
}

/// Of the rank whose threads waited longest, and its host.
void combine_delays(const runtime::Communicator& c, Noise& n) {
  const std::vector<double> all = c.gather_value(known_or_none(n.run_delay_share));
  const int worst = c.broadcast_value(static_cast<int>(std::ranges::max_element(all) - all.begin()));
  n.run_delay_share = c.broadcast_value(n.run_delay_share, worst);
  if (c.size() > 1 && std::isfinite(n.run_delay_share)) n.busy_host = c.broadcast_text(runtime::host_name(), worst);
}

/// The least clock, the most power and all events of the ranks, by one maximum. What one rank knows counts.
void combine_gpus(const runtime::Communicator& c, Noise& n) {
  std::vector<double> all(2 + event_bits, none);
  if (n.gpu_clock_hz) all[0] = -*n.gpu_clock_hz;
  if (n.gpu_power_watts) all[1] = *n.gpu_power_watts;
  for (std::size_t b = 0; n.gpu_events && b < event_bits; ++b) all[2 + b] = (*n.gpu_events >> b & 1) != 0 ? 1 : 0;
  c.max(all);
  if (all[0] != none) n.gpu_clock_hz = -all[0];
  if (all[1] != none) n.gpu_power_watts = all[1];
  if (all[2] == none) return;
  n.gpu_events = 0;
  for (std::size_t b = 0; b < event_bits; ++b) *n.gpu_events |= std::uint64_t{all[2 + b] > 0} << b;
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

Noise NoiseSampler::alone() const {
  const bool known = elapsed_s_ >= least_known_s;
  return {.steal_share = known ? stolen_s_ / elapsed_s_ : unknown,
          .run_delay_share = known ? delayed_s_ / elapsed_s_ : unknown,
          .involuntary_switches = involuntary_switches_,
          .frequency_hz = frequency_hz_,
          .gpu_clock_hz = gpu_clock_hz_.value(),
          .gpu_power_watts = gpu_power_watts_.value(),
          .gpu_events = gpu_events_};
}

Noise NoiseSampler::over(const runtime::Communicator& c) const {
  Noise n = alone();
  const double stolen = c.max(known_or_none(n.steal_share));
  n.steal_share = stolen == none ? unknown : stolen;
  combine_delays(c, n);
  n.involuntary_switches = static_cast<std::int64_t>(c.sum(static_cast<double>(n.involuntary_switches)));
  combine_gpus(c, n);
  return n;
}

void fill_noise(const Noise& noise, core::Point& row) {
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
