// What other processes did while a point was measured, summed over its rounds.
#pragma once
#include <optional>

#include "core/result.hpp"
#include "runtime/communicator.hpp"
#include "runtime/host/noise.hpp"

namespace gradmeter::bench {

/// NaN where the system does not tell, and where less than 0.1 s were measured: clock ticks and time slices are some
/// milliseconds long.
struct Noise {
  double steal_share = 0;      ///< of (elapsed x cores) on the worst node, taken by the hypervisor
  double run_delay_share = 0;  ///< of elapsed, that a thread of the worst rank was ready but not running
  std::int64_t involuntary_switches = 0;
  double frequency_hz = 0;
};

void fill_noise(const Noise&, core::Point& row);

class NoiseSampler {
 public:
  void begin() { gauge_.emplace(); }
  void end();
  /// For a process that measures alone.
  Noise alone() const;
  /// Collective over `c`: the worst of what is known.
  Noise over(const runtime::Communicator& c) const;

 private:
  std::optional<runtime::NoiseGauge> gauge_;
  double elapsed_s_ = 0, stolen_s_ = 0, delayed_s_ = 0;
  std::int64_t involuntary_switches_ = 0;
  double frequency_hz_ = 0;
};

}  // namespace gradmeter::bench
