// What else ran during a measurement: stolen time, time spent waiting for a core, preemptions, clock frequency.
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

/// What could not be read is NaN, never 0.
struct NoiseReading {
  double elapsed_s = 0;
  /// Time that the hypervisor took, of (elapsed x CPUs). The kernel counts it in ticks of 10 ms.
  double steal_share = 0;
  /// How long that thread of this process was ready to run and did not which waited longest for a core: work that is
  /// cut into equal parts ends with its slowest thread, and a sum over threads would exceed the time. It does not say
  /// for whom the thread waited: threads of our own on too few cores wait for each other, so where ranks and their
  /// threads outnumber the cores it tells nothing about others.
  double run_delay_s = 0;
  std::int64_t involuntary_switches = 0;  ///< how often this process was preempted
  double frequency_hz = 0;                ///< mean over the CPUs that we may use, at the moment of reading
};

/// The stolen time of /proc/stat's first line, in ticks, and the number of CPUs below it.
struct StolenTicks {
  std::uint64_t steal = 0;
  std::size_t cpus = 0;
};
/// Source: proc(5). Nothing where the line is missing or too short to hold stolen time.
std::optional<StolenTicks> parse_stolen_ticks(std::string_view proc_stat);

/// Of a thread, in nanoseconds since it began.
struct RunTimes {
  std::uint64_t on_cpu_ns = 0, waiting_ns = 0;
};
/// Source: kernel document sched-stats, /proc/PID/schedstat. Nothing where there are no two numbers.
std::optional<RunTimes> parse_schedstat(std::string_view schedstat);

/// Mean of "cpu MHz" in Hz; NaN where there is none or 0.
double parse_frequency(std::string_view cpuinfo);

/// Starts when made; `read` may be called more than once, each from the start. Of this process; where ranks are threads
/// of it, of the calling rank's threads, which have its name.
/// Cost: a small file and one for each thread of the process, some 10 us each; `read` also asks for the frequency,
/// which can take milliseconds on large nodes.
class NoiseGauge {
 public:
  /// `root`: where proc and sys are looked for.
  explicit NoiseGauge(std::filesystem::path root = "/");
  NoiseReading read() const;

 private:
  /// By thread [ns]; empty where the kernel does not count it.
  using RunDelays = std::map<long, std::uint64_t>;
  RunDelays read_run_delays() const;
  double longest_run_delay() const;
  std::int64_t preemptions() const;

  std::filesystem::path root_;
  std::string rank_;  ///< the name of this rank's threads where ranks are threads; empty: all of the process are its
  std::chrono::steady_clock::time_point start_;
  std::optional<StolenTicks> ticks_;
  RunDelays run_delays_;
  std::int64_t involuntary_switches_ = 0;
};

}  // namespace gradmeter::runtime
