// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/noise.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/host/kernel_files.hpp"
#include "runtime/threads/thread_group.hpp"

namespace gradmeter::runtime {

namespace {
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
/// Each frequency read may interrupt its CPU, so only a few are read for the mean.
constexpr int most_frequencies = 16;

std::int64_t preemptions_of(int scope) {
  rusage use{};
  if (::getrusage(scope, &use) != 0) throw core::BackendError("libc", "getrusage", std::strerror(errno));
  return use.ru_nivcsw;
}

std::string name_of_this_thread() {
  std::array<char, 16> name{};
  return ::pthread_getname_np(::pthread_self(), name.data(), name.size()) == 0 ? name.data() : "";
}

std::optional<StolenTicks> read_ticks(const std::filesystem::path& root) {
  const auto text = read_small_file(root / "proc/stat");
  return text ? parse_stolen_ticks(*text) : std::nullopt;
}

/// The mean of cpufreq's current frequency over the first CPUs of this thread's affinity [Hz]; NaN if it cannot be
/// read.
double cpufreq(const std::filesystem::path& root) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return unknown;  // it fails with over 1024 CPUs
  double sum = 0;
  int found = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE && found < most_frequencies; ++cpu) {
    if (!CPU_ISSET(static_cast<std::size_t>(cpu), &usable)) continue;
    const auto khz =
        read_number<double>(root / fmt::format("sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq", cpu));
    if (!khz || *khz <= 0) return unknown;
    sum += *khz * 1e3;
    ++found;
  }
  return found > 0 ? sum / found : unknown;
}

double read_frequency(const std::filesystem::path& root) {
  const double current = cpufreq(root);
  if (current == current) return current;
  const auto cpuinfo = read_small_file(root / "proc/cpuinfo");
  return cpuinfo ? parse_frequency(*cpuinfo) : unknown;
}

/// Times of a thread since it began.
struct RunTimes {
  std::uint64_t on_cpu_ns = 0, waiting_ns = 0;
};
/// Empty unless the text begins with two numbers. Source: kernel document sched-stats, /proc/PID/schedstat.
std::optional<RunTimes> parse_schedstat(std::string_view schedstat) {
  const auto fields = words(schedstat);
  if (fields.size() < 2) return std::nullopt;
  const auto on_cpu = leading_number<std::uint64_t>(fields[0]), waiting = leading_number<std::uint64_t>(fields[1]);
  if (!on_cpu || !waiting) return std::nullopt;
  return RunTimes{*on_cpu, *waiting};
}

bool starts_with_cpu_number(std::string_view line) {
  return line.size() > 3 && line.starts_with("cpu") && line[3] >= '0' && line[3] <= '9';
}
}  // namespace

std::optional<StolenTicks> parse_stolen_ticks(std::string_view proc_stat) {
  const auto total = value_of(proc_stat, "cpu ");
  if (!total) return std::nullopt;
  // user nice system idle iowait irq softirq steal
  const auto fields = words(*total);
  constexpr std::size_t steal_field = 7;
  if (fields.size() <= steal_field) return std::nullopt;
  StolenTicks ticks{.steal = leading_number<std::uint64_t>(fields[steal_field]).value_or(0)};
  for (const std::string_view line : lines(proc_stat)) ticks.cpus += starts_with_cpu_number(line);
  return ticks;
}

double parse_frequency(std::string_view cpuinfo) {
  double sum = 0;
  int found = 0;
  for (const std::string_view line : lines(cpuinfo)) {
    if (!line.starts_with("cpu MHz")) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const double mhz = leading_number<double>(trimmed(line.substr(colon + 1))).value_or(0);
    if (mhz <= 0) return unknown;
    sum += mhz * 1e6;
    ++found;
  }
  return found > 0 ? sum / found : unknown;
}

NoiseGauge::NoiseGauge(std::filesystem::path root)
    : root_(std::move(root)),
      rank_thread_name_(thread_ranks_running() ? name_of_this_thread() : ""),
      ticks_(read_ticks(root_)),
      run_delays_(read_run_delays()),
      involuntary_switches_(preemptions()) {
  start_ = std::chrono::steady_clock::now();
}

NoiseGauge::RunDelays NoiseGauge::read_run_delays() const {
  RunDelays out;
  bool counted = false;  // zeros for all threads mean that the kernel does not count
  std::error_code ended;
  for (const auto& thread : std::filesystem::directory_iterator(root_ / "proc/self/task", ended)) {
    if (!rank_thread_name_.empty() &&
        trimmed(read_small_file(thread.path() / "comm").value_or("")) != rank_thread_name_)
      continue;
    const auto text = read_small_file(thread.path() / "schedstat");
    const auto times = text ? parse_schedstat(*text) : std::nullopt;
    const auto id = leading_number<long>(thread.path().filename().native());
    if (!times || !id) continue;  // the thread has just ended
    out[*id] = times->waiting_ns;
    counted |= times->on_cpu_ns > 0;
  }
  return counted ? out : RunDelays{};
}

/// Preemptions of the whole process. If ranks are threads, those of the calling thread only, which are most of its
/// rank's, since no call sums over the threads of a rank.
std::int64_t NoiseGauge::preemptions() const {
  return preemptions_of(rank_thread_name_.empty() ? RUSAGE_SELF : RUSAGE_THREAD);
}

double NoiseGauge::longest_run_delay() const {
  const RunDelays now = read_run_delays();
  if (now.empty() || run_delays_.empty()) return unknown;
  std::uint64_t longest = 0;
  for (const auto& [thread, waiting] : now) {
    const auto before = run_delays_.find(thread);
    const std::uint64_t waited_before = before == run_delays_.end() ? 0 : before->second;
    if (waiting > waited_before) longest = std::max(longest, waiting - waited_before);
  }
  return 1e-9 * static_cast<double>(longest);
}

NoiseReading NoiseGauge::read() const {
  NoiseReading reading;
  reading.elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  reading.run_delay_s = longest_run_delay();
  reading.involuntary_switches = preemptions() - involuntary_switches_;
  reading.steal_share = unknown;
  if (const auto ticks = read_ticks(root_); ticks && ticks_) {
    // The kernel's counters may step back a little when CPUs go idle; the difference then counts as 0.
    const auto stolen = ticks->steal > ticks_->steal ? static_cast<double>(ticks->steal - ticks_->steal) : 0.0;
    const double whole = reading.elapsed_s * static_cast<double>(ticks->cpus);
    if (whole > 0) reading.steal_share = stolen / static_cast<double>(::sysconf(_SC_CLK_TCK)) / whole;
  }
  reading.frequency_hz = read_frequency(root_);
  return reading;
}

}  // namespace gradmeter::runtime
