// SPDX-License-Identifier: Apache-2.0
// What NVML says of ranks' GPUs becomes one figure each, of the rank that it tells most of; the host where ranks waited
// for cores is named.
#include "bench/engine/machine_state.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/host/host.hpp"
#include "runtime/threads/thread_group.hpp"

namespace gradmeter::bench {
namespace {

constexpr const char* slower_gpu = "0000:01:00.0";  ///< 1410 MHz, 300.5 W; the other one 1755 MHz, 412.5 W

class GpuNoise : public ::testing::Test {
 protected:
  void SetUp() override { setenv("NVML_BUS_ID", slower_gpu, 1); }
  void TearDown() override { unsetenv("NVML_BUS_ID"), unsetenv("NVML_REFUSES"); }
};

/// Of so many ranks, one a GPU. Null: it has none.
std::vector<core::Metrics> metrics_of(const std::vector<const char*>& gpus) {
  std::vector<core::Metrics> out(gpus.size());
  runtime::run_thread_ranks(static_cast<int>(gpus.size()), [&](const runtime::Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    std::unique_ptr<runtime::GpuGauge> gauge;
    if (gpus[rank]) gauge = std::make_unique<runtime::GpuGauge>(gpus[rank], GRADMETER_NVML);
    NoiseSampler sampler(gauge.get());
    for (int round = 0; round < 2; ++round) {
      sampler.begin();
      sampler.end();
    }
    core::Point row;
    fill_noise(sampler.over(world), row);
    out[rank] = row.metrics;
  });
  return out;
}

double number(const core::Metrics& m, core::Metric metric) { return m.number(metric); }
std::string text_of(const core::Metrics& m, core::Metric metric) { return core::to_text(m[metric]); }

TEST_F(GpuNoise, IsTheSlowestClockTheMostPowerAndAllThatSlows) {
  for (const auto& m : metrics_of({"0000:65:00.0", slower_gpu, nullptr})) {
    EXPECT_EQ(number(m, core::Metric::gpu_clock_hz), 1410e6);
    EXPECT_EQ(number(m, core::Metric::gpu_power_watts), 412.5);
    EXPECT_EQ(text_of(m, core::Metric::gpu_slowed_by), "power cap, hardware thermal, power brake");
  }
}

TEST_F(GpuNoise, AnIdleGpuIsNotSlowed) {
  const auto m = metrics_of({slower_gpu}).front();
  EXPECT_EQ(text_of(m, core::Metric::gpu_slowed_by), "power brake");
}

TEST_F(GpuNoise, WhatNobodyTellsIsAbsent) {
  setenv("NVML_REFUSES", "nvmlDeviceGetPowerUsage", 1);
  const auto refused = metrics_of({slower_gpu}).front();
  EXPECT_TRUE(core::is_null(refused[core::Metric::gpu_power_watts]));
  EXPECT_EQ(number(refused, core::Metric::gpu_clock_hz), 1410e6);
  for (const auto& m : metrics_of({nullptr, "0000:99:00.0"})) {
    EXPECT_TRUE(core::is_null(m[core::Metric::gpu_clock_hz]));
    EXPECT_TRUE(core::is_null(m[core::Metric::gpu_slowed_by]));
  }
}

core::Metrics waiting_for_cores(int ranks) {
  using std::chrono::milliseconds;
  core::Metrics out;
  runtime::run_thread_ranks(ranks, [&](const runtime::Communicator& world) {
    std::this_thread::sleep_for(
        milliseconds(1));  // the kernel's counts of a thread begin when it first leaves its core
    NoiseSampler sampler;
    sampler.begin();
    std::this_thread::sleep_for(milliseconds(110));  // below 0.1 s nothing is known
    sampler.end();
    core::Point row;
    fill_noise(sampler.over(world), row);
    if (world.rank() == 0) out = row.metrics;
  });
  return out;
}

TEST(Noise, NamesTheHostOfTheRankThatWaitedForACore) {
  EXPECT_EQ(text_of(waiting_for_cores(2), core::Metric::busy_host), runtime::host_name());
  EXPECT_TRUE(core::is_null(waiting_for_cores(1)[core::Metric::busy_host]));
}

}  // namespace
}  // namespace gradmeter::bench
