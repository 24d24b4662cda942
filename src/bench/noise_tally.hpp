// What else ran while a point was measured, added up over its rounds.
#pragma once
#include <optional>

#include "core/result.hpp"
#include "runtime/mpi.hpp"
#include "runtime/noise.hpp"

namespace gradmeter::bench {

/// Shares are of (elapsed × cores) on the worst node; NaN where the system does not tell.
struct Noise {
  double steal_share = 0;    ///< taken by the hypervisor
  double foreign_share = 0;  ///< busy with other processes than this job's ranks
  std::int64_t involuntary_switches = 0;
  double frequency_hz = 0;
};

void fill_noise(const Noise&, core::Point& row);

class NoiseTally {
 public:
  void begin() { gauge_.emplace(); }
  void end();
  /// Of a process that measures by itself.
  Noise alone() const;
  /// Collective over `c`: ranks of a node add up what is theirs.
  Noise over(const runtime::Communicator& c) const;

 private:
  double foreign_share(double own_cpu_s) const;

  std::optional<runtime::NoiseGauge> gauge_;
  runtime::NoiseReading sum_;
  double stolen_s_ = 0;
};

}  // namespace gradmeter::bench
