#include "runtime/noise.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "runtime/fake_root.hpp"

namespace gradmeter::runtime {
namespace {

using testing::FakeRoot;
using namespace std::chrono_literals;

TEST(CpuTicks, BusyLeavesOutIdleWaitAndStolenTime) {
  const auto ticks = parse_cpu_ticks(
      "cpu  100 20 30 4000 500 6 7 80 9 10\n"
      "cpu0 50 10 15 2000 250 3 4 40 5 5\n"
      "cpu1 50 10 15 2000 250 3 3 40 4 5\n"
      "intr 1 2 3\nctxt 5\n");
  ASSERT_TRUE(ticks);
  EXPECT_EQ(ticks->busy, 163u);  // guest time (9, 10) is inside user time already
  EXPECT_EQ(ticks->steal, 80u);
  EXPECT_EQ(ticks->cpus, 2u);
}

TEST(CpuTicks, AKernelThatCountsNoStolenTimeIsNotRead) {
  EXPECT_FALSE(parse_cpu_ticks("cpu 1 2 3 4\n"));
  EXPECT_FALSE(parse_cpu_ticks("intr 5\n"));
  EXPECT_FALSE(parse_cpu_ticks(""));
}

TEST(Frequency, IsTheMeanAndNaNWhereThereIsNone) {
  EXPECT_DOUBLE_EQ(parse_frequency("processor\t: 0\ncpu MHz\t\t: 2000.0\nprocessor\t: 1\ncpu MHz\t\t: 3000.0\n"),
                   2.5e9);
  EXPECT_TRUE(std::isnan(parse_frequency("cpu MHz\t\t: 0.000\n")));
  EXPECT_TRUE(std::isnan(parse_frequency("processor\t: 0\n")));
}

TEST(NoiseGauge, CountsWhatRanBetweenTheTwoLooks) {
  const FakeRoot root;
  root.write("proc/stat", "cpu  100 0 100 1000 0 0 0 50 0 0\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\n");
  root.write("proc/cpuinfo", "cpu MHz : 2500.0\n");
  const NoiseGauge gauge(root.path());
  std::this_thread::sleep_for(5ms);
  root.write("proc/stat", "cpu  400 0 200 1000 0 0 0 70 0 0\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\n");
  const NoiseReading reading = gauge.read();
  const double tick_s = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(reading.busy_cpu_s, 400 * tick_s);
  EXPECT_GE(reading.elapsed_s, 0.005);
  EXPECT_NEAR(reading.steal_share * reading.elapsed_s * 4, 20 * tick_s, 1e-9);
  EXPECT_EQ(reading.cpus, 4u);
  EXPECT_DOUBLE_EQ(reading.frequency_hz, 2.5e9);
}

TEST(NoiseGauge, MissingEntriesAreNaNAndNeverZero) {
  const FakeRoot empty;
  const NoiseReading reading = NoiseGauge(empty.path()).read();
  EXPECT_TRUE(std::isnan(reading.steal_share));
  EXPECT_TRUE(std::isnan(reading.busy_cpu_s));
  EXPECT_TRUE(std::isnan(reading.frequency_hz));
  EXPECT_EQ(reading.cpus, 0u);
  EXPECT_FALSE(std::isnan(reading.own_cpu_s)) << "the process knows its own use without /proc";
}

TEST(NoiseGauge, CountersThatStepBackAreNoWork) {
  const FakeRoot root;
  root.write("proc/stat", "cpu  100 0 100 1000 0 0 0 50 0 0\ncpu0 1\n");
  const NoiseGauge gauge(root.path());
  root.write("proc/stat", "cpu  99 0 100 1000 0 0 0 49 0 0\ncpu0 1\n");
  const NoiseReading reading = gauge.read();
  EXPECT_EQ(reading.busy_cpu_s, 0);
  EXPECT_EQ(reading.steal_share, 0);
}

TEST(NoiseGauge, OwnTimeIsThatOfAllThreads) {
  const NoiseGauge gauge;
  const auto burn = [] {
    const auto used_s = [] {
      timespec used{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
    };
    const double start_s = used_s();
    while (used_s() - start_s < 0.06) {
    }
  };
  std::thread other(burn);
  burn();
  other.join();
  const NoiseReading reading = gauge.read();
  EXPECT_GE(reading.own_cpu_s, 0.1);
  EXPECT_LT(reading.own_cpu_s, 10);
  EXPECT_GE(reading.elapsed_s, 0.05);
  EXPECT_GE(reading.involuntary_switches, 0);
  if (!std::isnan(reading.busy_cpu_s)) {
    EXPECT_GT(reading.busy_cpu_s, 0);
  }
}

}  // namespace
}  // namespace gradmeter::runtime
