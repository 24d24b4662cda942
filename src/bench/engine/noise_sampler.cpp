#include "bench/engine/noise_sampler.hpp"

#include <cmath>
#include <limits>

namespace gradmeter::bench {
namespace {

constexpr double least_known_s = 0.1;
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void NoiseSampler::end() {
  const runtime::NoiseReading r = gauge_->read();
  elapsed_s_ += r.elapsed_s;
  stolen_s_ += r.steal_share * r.elapsed_s;
  delayed_s_ += r.run_delay_s;
  involuntary_switches_ += r.involuntary_switches;
  frequency_hz_ = r.frequency_hz;
}

Noise NoiseSampler::alone() const {
  const bool known = elapsed_s_ >= least_known_s;
  return {.steal_share = known ? stolen_s_ / elapsed_s_ : unknown,
          .run_delay_share = known ? delayed_s_ / elapsed_s_ : unknown,
          .involuntary_switches = involuntary_switches_,
          .frequency_hz = frequency_hz_};
}

Noise NoiseSampler::over(const runtime::Communicator& c) const {
  const auto worst = [&c](double share) {
    const double most = c.max(std::isfinite(share) ? share : -1);
    return most < 0 ? unknown : most;
  };
  Noise n = alone();
  n.steal_share = worst(n.steal_share);
  n.run_delay_share = worst(n.run_delay_share);
  n.involuntary_switches = static_cast<std::int64_t>(c.sum(static_cast<double>(n.involuntary_switches)));
  return n;
}

void fill_noise(const Noise& noise, core::Point& row) {
  row.metrics[core::Metric::noise_steal] = noise.steal_share;
  row.metrics[core::Metric::noise_run_delay] = noise.run_delay_share;
  row.metrics[core::Metric::noise_switches] = noise.involuntary_switches;
  if (noise.frequency_hz > 0) row.metrics[core::Metric::frequency_hz] = noise.frequency_hz;
}

}  // namespace gradmeter::bench
