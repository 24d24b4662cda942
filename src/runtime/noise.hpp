// What else ran during a measurement: stolen time, foreign load, preemptions, clock frequency.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace gradmeter::runtime {

/// What could not be read is NaN, never 0. The kernel counts CPU time in ticks (10 ms): a short point says little.
struct NoiseReading {
  double elapsed_s = 0;
  double steal_share = 0;  ///< time that the hypervisor took, of (elapsed x CPUs)
  double busy_cpu_s = 0;   ///< CPU seconds of all processes on this node, idle, I/O wait and stolen time apart
  double own_cpu_s = 0;    ///< of those, this process with all its threads; ranks on the node add theirs up
  std::int64_t involuntary_switches = 0;  ///< how often this process was preempted
  double frequency_hz = 0;                ///< mean over the CPUs that we may use, at the moment of reading
  std::size_t cpus = 0;                   ///< that the node's counters cover; 0: unknown
};

/// The counters of /proc/stat's first line, in ticks, and the number of CPUs below it.
struct CpuTicks {
  std::uint64_t busy = 0, steal = 0;
  std::size_t cpus = 0;
};
/// Source: proc(5). Nothing where the line is missing or too short to hold stolen time.
std::optional<CpuTicks> parse_cpu_ticks(std::string_view proc_stat);
/// Mean of "cpu MHz" in Hz; NaN where there is none or 0.
double parse_frequency(std::string_view cpuinfo);

/// Starts when made; `read` may be called more than once, each from the start.
/// Cost: two small files; `read` also asks for the frequency, which can take milliseconds on large nodes.
class NoiseGauge {
 public:
  /// `root`: where proc and sys are looked for.
  explicit NoiseGauge(std::filesystem::path root = "/");
  NoiseReading read() const;

 private:
  std::filesystem::path root_;
  std::chrono::steady_clock::time_point start_;
  std::optional<CpuTicks> ticks_;
  double own_cpu_s_ = 0;
  std::int64_t involuntary_switches_ = 0;
};

}  // namespace gradmeter::runtime
