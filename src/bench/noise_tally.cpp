#include "bench/noise_tally.hpp"

#include <algorithm>
#include <cmath>

namespace gradmeter::bench {

void NoiseTally::end() {
  const runtime::NoiseReading r = gauge_->read();
  sum_.elapsed_s += r.elapsed_s;
  sum_.busy_cpu_s += r.busy_cpu_s;
  sum_.own_cpu_s += r.own_cpu_s;
  sum_.involuntary_switches += r.involuntary_switches;
  sum_.frequency_hz = r.frequency_hz;
  sum_.cpus = r.cpus;
  stolen_s_ += r.steal_share * r.elapsed_s;
}

double NoiseTally::foreign_share(double own_cpu_s) const {
  const double room = sum_.elapsed_s * static_cast<double>(std::max<std::size_t>(1, sum_.cpus));
  return std::max(0.0, sum_.busy_cpu_s - own_cpu_s) / room;
}

Noise NoiseTally::alone() const {
  return {.steal_share = stolen_s_ / sum_.elapsed_s,
          .foreign_share = foreign_share(sum_.own_cpu_s),
          .involuntary_switches = sum_.involuntary_switches,
          .frequency_hz = sum_.frequency_hz};
}

Noise NoiseTally::over(const runtime::Communicator& c) const {
  const runtime::Communicator node = c.split_by_node();
  const double foreign = foreign_share(node.sum(sum_.own_cpu_s));
  const auto worst = [&](double share) { return std::isfinite(share) ? c.max(share) : c.max(0) + share; };
  return {.steal_share = worst(stolen_s_ / sum_.elapsed_s),
          .foreign_share = worst(foreign),
          .involuntary_switches = static_cast<std::int64_t>(c.sum(static_cast<double>(sum_.involuntary_switches))),
          .frequency_hz = sum_.frequency_hz};
}

void fill_noise(const Noise& noise, core::Point& row) {
  row.metrics[core::Metric::noise_steal] = noise.steal_share;
  row.metrics[core::Metric::noise_run_delay] = noise.foreign_share;
  row.metrics[core::Metric::noise_switches] = noise.involuntary_switches;
  if (noise.frequency_hz > 0) row.metrics[core::Metric::frequency_hz] = noise.frequency_hz;
}

}  // namespace gradmeter::bench
