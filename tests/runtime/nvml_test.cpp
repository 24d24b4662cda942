// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/nvml.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace gradmeter::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* gpu = "0000:65:00.0";

/// The stand-in refuses this function until the end of the scope.
class Refusing {
 public:
  explicit Refusing(const char* function) { setenv("NVML_REFUSES", function, 1); }
  ~Refusing() { unsetenv("NVML_REFUSES"); }
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;
};

TEST(GpuGauge, ReadsClockPowerTemperatureAndWhatSlowsTheClock) {
  const GpuGauge nvml(gpu, GRADMETER_NVML);
  ASSERT_EQ(nvml.problem(), "");
  EXPECT_EQ(nvml.version(), "NVML 13.580.65, driver 580.65.06");
  const GpuState s = nvml.read();
  EXPECT_EQ(s.problem, "");
  EXPECT_EQ(s.sm_clock_hz, 1755e6);
  EXPECT_EQ(s.power_watts, 412.5);
  EXPECT_EQ(s.temperature_celsius, 63);
  ASSERT_TRUE(s.clock_events);
  EXPECT_THAT(clock_event_names(*s.clock_events), ElementsAre("power cap", "hardware thermal"));
}

TEST(GpuGauge, AnOlderDriversNamesDo) {
  const GpuGauge nvml(gpu, GRADMETER_OLD_NVML);
  ASSERT_EQ(nvml.problem(), "");
  const GpuState s = nvml.read();
  EXPECT_EQ(s.problem, "");
  EXPECT_EQ(s.temperature_celsius, 51);
  EXPECT_EQ(s.clock_events, 0x4u);
}

TEST(GpuGauge, WhatIsNotSupportedIsMissingAndSaid) {
  const GpuGauge nvml(gpu, GRADMETER_NVML);
  const Refusing refusing("nvmlDeviceGetPowerUsage");
  const GpuState s = nvml.read();
  EXPECT_EQ(s.problem, "nvmlDeviceGetPowerUsage: Not Supported");
  EXPECT_FALSE(s.power_watts);
  EXPECT_TRUE(s.sm_clock_hz && s.temperature_celsius && s.clock_events);
}

TEST(GpuGauge, AnUnknownDeviceHasNoValues) {
  const GpuState s = GpuGauge("0000:66:00.0", GRADMETER_NVML).read();
  EXPECT_THAT(s.problem, HasSubstr("0000:66:00.0: Not Found"));
  EXPECT_FALSE(s.sm_clock_hz || s.power_watts || s.temperature_celsius || s.clock_events);
}

TEST(GpuGauge, WithoutLibraryOrDriverThereIsAReason) {
  const GpuGauge absent(gpu, "libno-such-library.so.1");
  EXPECT_THAT(absent.problem(), StartsWith("NVML cannot be loaded: libno-such-library.so.1"));
  EXPECT_EQ(absent.version(), "");
  EXPECT_EQ(absent.read().problem, absent.problem());
  const Refusing refusing("nvmlInit_v2");
  EXPECT_EQ(GpuGauge(gpu, GRADMETER_NVML).problem(), "nvmlInit_v2: Driver Not Loaded");
  EXPECT_THAT(GpuGauge(gpu, "libdl.so.2").problem(), HasSubstr("has no nvmlInit_v2"));
}

TEST(GpuGauge, EventsWithoutANameAreTheirNumber) {
  EXPECT_THAT(clock_event_names(0), ElementsAre());
  EXPECT_THAT(clock_event_names(0x1 | 0x400), ElementsAre("idle", "0x400"));
}

TEST(GpuGauge, OfThisMachineIsUsableOrSaysWhyNot) {
  const GpuGauge nvml(gpu);
  EXPECT_EQ(nvml.problem().empty(), !nvml.version().empty());
  EXPECT_EQ(nvml.problem().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace gradmeter::runtime
