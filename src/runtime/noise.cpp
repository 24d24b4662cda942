#include "runtime/noise.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/proc_files.hpp"

namespace gradmeter::runtime {

namespace {
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
/// Each frequency read may interrupt its CPU: a few tell the mean.
constexpr int most_frequencies = 16;

struct OwnUse {
  double cpu_s;
  std::int64_t involuntary_switches;
};

OwnUse own_use() {
  rusage use{};
  if (::getrusage(RUSAGE_SELF, &use) != 0) throw core::BackendError("libc", "getrusage", std::strerror(errno));
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {seconds(use.ru_utime) + seconds(use.ru_stime), use.ru_nivcsw};
}

std::optional<CpuTicks> read_ticks(const std::filesystem::path& root) {
  const auto text = read_small_file(root / "proc/stat");
  return text ? parse_cpu_ticks(*text) : std::nullopt;
}

/// Mean of cpufreq's current frequency [kHz in the file] over the first CPUs of our affinity.
double cpufreq(const std::filesystem::path& root) {
  cpu_set_t ours;
  CPU_ZERO(&ours);
  if (::sched_getaffinity(0, sizeof ours, &ours) != 0) return unknown;  // over 1024 CPUs: cpuinfo will do
  double sum = 0;
  int found = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE && found < most_frequencies; ++cpu) {
    if (!CPU_ISSET(static_cast<std::size_t>(cpu), &ours)) continue;
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

bool starts_with_cpu_number(std::string_view line) {
  return line.size() > 3 && line.starts_with("cpu") && line[3] >= '0' && line[3] <= '9';
}
}  // namespace

std::optional<CpuTicks> parse_cpu_ticks(std::string_view proc_stat) {
  const auto total = value_of(proc_stat, "cpu ");
  if (!total) return std::nullopt;
  // user nice system idle iowait irq softirq steal; guest time is part of user time.
  const auto fields = words(*total);
  constexpr std::size_t steal_field = 7;
  if (fields.size() <= steal_field) return std::nullopt;
  CpuTicks ticks;
  for (const std::size_t i : {0, 1, 2, 5, 6}) ticks.busy += leading_number<std::uint64_t>(fields[i]).value_or(0);
  ticks.steal = leading_number<std::uint64_t>(fields[steal_field]).value_or(0);
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

NoiseGauge::NoiseGauge(std::filesystem::path root) : root_(std::move(root)) {
  const OwnUse use = own_use();
  own_cpu_s_ = use.cpu_s;
  involuntary_switches_ = use.involuntary_switches;
  ticks_ = read_ticks(root_);
  start_ = std::chrono::steady_clock::now();
}

NoiseReading NoiseGauge::read() const {
  NoiseReading reading;
  reading.elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const auto ticks = read_ticks(root_);
  const OwnUse use = own_use();
  reading.own_cpu_s = use.cpu_s - own_cpu_s_;
  reading.involuntary_switches = use.involuntary_switches - involuntary_switches_;
  reading.steal_share = reading.busy_cpu_s = unknown;
  if (ticks && ticks_) {
    const double tick_s = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
    reading.cpus = ticks->cpus;
    // The kernel's counters may step back a little when CPUs go idle: then nothing was used.
    const auto spent = [&](std::uint64_t before, std::uint64_t after) {
      return after > before ? static_cast<double>(after - before) * tick_s : 0.0;
    };
    reading.busy_cpu_s = spent(ticks_->busy, ticks->busy);
    const double whole = reading.elapsed_s * static_cast<double>(ticks->cpus);
    reading.steal_share = whole > 0 ? spent(ticks_->steal, ticks->steal) / whole : unknown;
  }
  reading.frequency_hz = read_frequency(root_);
  return reading;
}

}  // namespace gradmeter::runtime
