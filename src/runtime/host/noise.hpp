// SPDX-License-Identifier: Apache-2.0
// The disturbances of a measurement: stolen time, waits for a core, preemptions, clock frequency.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace gradmeter::runtime {

/// The disturbances between the construction of a NoiseGauge and its reading. Values that could not be read are NaN,
/// never 0.
struct NoiseReading {
  double elapsed_s = 0;
  /// Share of (elapsed time × CPUs) that the hypervisor took. The kernel counts it in ticks of 10 ms.
  double steal_share = 0;
  /// The largest time that any one thread was ready to run but waited for a core [s]. It is not a sum over threads,
  /// since work cut into equal parts ends with its slowest thread, and a sum could exceed the elapsed time. The value
  /// does not tell what ran instead: if this process has more threads than cores, its threads wait for each other.
  double run_delay_s = 0;
  std::int64_t involuntary_switches = 0;  ///< number of preemptions of this process; of one thread if ranks are threads
  double frequency_hz = 0;  ///< at the reading: mean of up to 16 usable CPUs, else of all in /proc/cpuinfo [Hz]
};

/// The stolen time in /proc/stat's first line, in ticks, and the number of CPUs that /proc/stat lists.
struct StolenTicks {
  std::uint64_t steal = 0;
  std::size_t cpus = 0;
};
/// Reads the stolen ticks from the text of /proc/stat. Empty if its first line is missing or too short to hold stolen
/// time. Source: proc(5).
std::optional<StolenTicks> parse_stolen_ticks(std::string_view proc_stat);

/// The mean of the frequencies in the lines "cpu MHz" of /proc/cpuinfo [Hz]; NaN if there is no such line, or a
/// frequency is not positive.
double parse_frequency(std::string_view cpuinfo);

/// Measures from its construction; `read` may be called several times. It covers all threads of this process or, if
/// ranks are threads, only those of the calling rank, which are named after the rank. Cost: construction and each
/// `read` open one small file, and one more for each thread of the process, some 10 us each; `read` also asks for the
/// frequency, which can take milliseconds on large nodes.
class NoiseGauge {
 public:
  /// `root`: the directory that holds proc and sys.
  explicit NoiseGauge(std::filesystem::path root = "/");
  NoiseReading read() const;

 private:
  /// The time that each thread has waited for a core [ns]; empty if the kernel does not count it.
  using RunDelays = std::map<long, std::uint64_t>;
  RunDelays read_run_delays() const;
  double longest_run_delay() const;
  std::int64_t preemptions() const;

  std::filesystem::path root_;
  /// Name of this rank's threads where ranks are threads; empty: all threads of the process belong to the rank.
  std::string rank_thread_name_;
  std::chrono::steady_clock::time_point start_;
  std::optional<StolenTicks> ticks_;
  RunDelays run_delays_;
  std::int64_t involuntary_switches_ = 0;
};

}  // namespace gradmeter::runtime
