// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/noise.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "runtime/fake_root.hpp"
#include "support/hog.hpp"

namespace gradmeter::runtime {
namespace {

using test::burn;
using test::Hog;
using test::Pinned;
using testing::FakeRoot;
using namespace std::chrono_literals;

TEST(StolenTicks, AreTheEighthFieldOfTheFirstLine) {
  const auto ticks = parse_stolen_ticks(
      "cpu  100 20 30 4000 500 6 7 80 9 10\n"
      "cpu0 50 10 15 2000 250 3 4 40 5 5\n"
      "cpu1 50 10 15 2000 250 3 3 40 4 5\n"
      "intr 1 2 3\nctxt 5\n");
  ASSERT_TRUE(ticks);
  EXPECT_EQ(ticks->steal, 80u);
  EXPECT_EQ(ticks->cpus, 2u);
}

TEST(StolenTicks, AKernelThatCountsNoStolenTimeIsNotRead) {
  EXPECT_FALSE(parse_stolen_ticks("cpu 1 2 3 4\n"));
  EXPECT_FALSE(parse_stolen_ticks("intr 5\n"));
  EXPECT_FALSE(parse_stolen_ticks(""));
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
  EXPECT_GE(reading.elapsed_s, 0.005);
  EXPECT_NEAR(reading.steal_share * reading.elapsed_s * 4, 20 * tick_s, 1e-9);
  EXPECT_DOUBLE_EQ(reading.frequency_hz, 2.5e9);
}

TEST(NoiseGauge, TheRunDelayIsThatOfTheThreadThatWaitedLongest) {
  const FakeRoot root;
  root.write("proc/self/task/7/schedstat", "5000 900000000 3\n");
  root.write("proc/self/task/8/schedstat", "0 100000000 3\n");
  const NoiseGauge gauge(root.path());
  root.write("proc/self/task/7/schedstat", "6000 950000000 4\n");
  root.write("proc/self/task/8/schedstat", "0 300000000 4\n");
  root.write("proc/self/task/9/schedstat", "10 150000000 1\n");  // began since
  root.write("proc/self/task/10/schedstat", "\n");
  EXPECT_DOUBLE_EQ(gauge.read().run_delay_s, 0.2);
  root.write("proc/self/task/9/schedstat", "10 250000000 1\n");
  EXPECT_DOUBLE_EQ(gauge.read().run_delay_s, 0.25);
}

TEST(NoiseGauge, AKernelThatLeavesZerosOrNoTwoNumbersDoesNotCountRunDelays) {
  for (const char* const schedstat : {"0 0 0\n", "12\n", "x y z\n", ""}) {
    const FakeRoot root;
    root.write("proc/self/task/7/schedstat", schedstat);
    EXPECT_TRUE(std::isnan(NoiseGauge(root.path()).read().run_delay_s)) << schedstat;
  }
}

TEST(NoiseGauge, MissingEntriesAreNaNAndNeverZero) {
  const FakeRoot empty;
  const NoiseReading reading = NoiseGauge(empty.path()).read();
  EXPECT_TRUE(std::isnan(reading.steal_share));
  EXPECT_TRUE(std::isnan(reading.run_delay_s));
  EXPECT_TRUE(std::isnan(reading.frequency_hz));
}

TEST(NoiseGauge, CountersThatStepBackAreNoTime) {
  const FakeRoot root;
  root.write("proc/stat", "cpu  100 0 100 1000 0 0 0 50 0 0\ncpu0 1\n");
  root.write("proc/self/task/7/schedstat", "5 10 1\n");
  const NoiseGauge gauge(root.path());
  root.write("proc/stat", "cpu  99 0 100 1000 0 0 0 49 0 0\ncpu0 1\n");
  root.write("proc/self/task/7/schedstat", "5 9 1\n");
  const NoiseReading reading = gauge.read();
  EXPECT_EQ(reading.steal_share, 0);
  EXPECT_EQ(reading.run_delay_s, 0);
}

TEST(NoiseGauge, AHogOnTheSameCoreIsSeenAndNoneIsNot) {
  const Pinned pinned(0);
  if (std::isnan(NoiseGauge().read().run_delay_s)) GTEST_SKIP() << "this kernel does not count run delays";
  const auto share = [] {
    const NoiseGauge gauge;
    burn(0.15);
    const NoiseReading r = gauge.read();
    return r.run_delay_s / r.elapsed_s;
  };
  {
    const Hog hog;
    EXPECT_GT(share(), 0.25);
  }
  // Other programs of this machine are seen as well: one quiet moment will do.
  double least = 1;
  for (int tries = 0; tries < 10 && least > 0.2; ++tries) least = std::min(least, share());
  if (least > 0.2) GTEST_SKIP() << "this machine is busy: without a hog the delay is " << least;
}

}  // namespace
}  // namespace gradmeter::runtime
