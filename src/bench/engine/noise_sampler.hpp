// What other processes did while a point was measured, and what held its GPU back, over its rounds.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/result.hpp"
#include "runtime/communicator.hpp"
#include "runtime/cuda/gpu_gauge.hpp"
#include "runtime/host/noise.hpp"

namespace gradmeter::bench {

/// NaN where the system does not tell, and where less than 0.1 s were measured: clock ticks and time slices are some
/// milliseconds long.
struct Noise {
  double steal_share = 0;      ///< of (elapsed x cores) on the worst node, taken by the hypervisor
  double run_delay_share = 0;  ///< of elapsed, that a thread of the worst rank was ready but not running
  std::int64_t involuntary_switches = 0;
  double frequency_hz = 0;
  /// Read when a round has ended, so no reading is in a time. Nothing: there is no GPU, or NVML does not tell.
  std::optional<double> gpu_clock_hz = {},
                        gpu_power_watts = {};    ///< means over rounds: the least clock, the most power
  std::optional<std::uint64_t> gpu_events = {};  ///< runtime::clock_event_names, of any round and GPU
};

void fill_noise(const Noise&, core::Point& row);

class NoiseSampler {
 public:
  /// gpu: of this rank; it outlives the sampler. Null: there is none.
  explicit NoiseSampler(const runtime::GpuGauge* gpu = nullptr) : gpu_(gpu) {}
  void begin() { gauge_.emplace(); }
  void end();
  /// For a process that measures alone.
  Noise alone() const;
  /// Collective over `c`: the worst of what is known.
  Noise over(const runtime::Communicator& c) const;

 private:
  void read_gpu();

  const runtime::GpuGauge* gpu_;
  std::optional<runtime::NoiseGauge> gauge_;
  double elapsed_s_ = 0, stolen_s_ = 0, delayed_s_ = 0;
  std::int64_t involuntary_switches_ = 0;
  double frequency_hz_ = 0;
  struct Mean {
    double sum = 0;
    std::size_t count = 0;
    void add(const std::optional<double>& x) {
      if (x) sum += *x, ++count;
    }
    std::optional<double> value() const {
      return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
    }
  };
  Mean gpu_clock_hz_, gpu_power_watts_;
  std::optional<std::uint64_t> gpu_events_;
};

}  // namespace gradmeter::bench
