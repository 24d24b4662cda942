// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/gpus.hpp"

#include <gtest/gtest.h>

#include <map>

namespace gradmeter::runtime {
namespace {

using Choice = std::vector<std::optional<int>>;

ReadVariable variables(const std::map<std::string, std::string>& set) {
  return [set](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  };
}

TEST(DeviceChoice, RanksThatSeeTheSameDevicesTakeThemInTurn) {
  const VisibleDevices all{"a", "b", "c", "d"};
  EXPECT_EQ(choose_devices(std::vector<VisibleDevices>(3, all)), (Choice{0, 1, 2}));
  EXPECT_EQ(choose_devices(std::vector<VisibleDevices>(6, all)), (Choice{0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(choose_devices(std::vector<VisibleDevices>(3, {"a"})), (Choice{0, 0, 0}));
  EXPECT_EQ(choose_devices({}), Choice{});
}

TEST(DeviceChoice, ATaskThatSlurmBoundToOneDeviceHasThatOne) {
  const std::vector<VisibleDevices> bound{{"a"}, {"b"}, {"c"}};
  EXPECT_EQ(choose_devices(bound), (Choice{0, 0, 0}));
}

TEST(DeviceChoice, TasksWithDevicesOfTheirOwnSocketDoNotShareThem) {
  const VisibleDevices first{"a", "b"}, second{"c", "d"};
  EXPECT_EQ(choose_devices(std::vector{first, first, second, second}), (Choice{0, 1, 0, 1}));
  EXPECT_EQ(choose_devices(std::vector{first, second, first, second}), (Choice{0, 0, 1, 1}));
}

TEST(DeviceChoice, WhoSeesLessChoosesFirst) {
  const VisibleDevices both{"a", "b"}, one{"a"};
  EXPECT_EQ(choose_devices(std::vector{both, one}), (Choice{1, 0}));
  EXPECT_EQ(choose_devices(std::vector{both, both, one}), (Choice{1, 0, 0}));
}

TEST(DeviceChoice, ARankWithoutDevicesGetsNone) {
  EXPECT_EQ(choose_devices(std::vector<VisibleDevices>{{}, {"a"}}), (Choice{std::nullopt, 0}));
}

TEST(DeviceChoice, SharedDevicesAreSaidWithTheirNumber) {
  using Devices = std::vector<std::string>;
  EXPECT_EQ(shared_devices_note({}), "");
  EXPECT_EQ(most_ranks_on_a_device({}), 0);
  EXPECT_EQ(most_ranks_on_a_device(Devices{"a", "b", "c"}), 1);
  EXPECT_EQ(shared_devices_note(Devices{"a", "b", "c"}), "");
  EXPECT_EQ(shared_devices_note(Devices{"a", "a"}),
            "2 ranks share 1 GPU, up to 2 a GPU: they take turns, so times and efficiencies say nothing of scaling");
  const Devices some{"a", "b", "a", "a"};
  EXPECT_EQ(most_ranks_on_a_device(some), 3);
  EXPECT_TRUE(shared_devices_note(some).starts_with("4 ranks share 2 GPUs, up to 3 a GPU"))
      << shared_devices_note(some);
}

TEST(DeviceChoice, WhySaysWhatHidesTheDevices) {
  EXPECT_EQ(no_device_reason(variables({})), "no GPU is visible to this rank: use --device cpu");
  EXPECT_EQ(no_device_reason(variables({{"SLURM_STEP_ID", "0"}})),
            "no GPU is visible to this rank: ask Slurm for GPUs (--gpus-per-task=1), or use --device cpu");
  const std::string hidden = no_device_reason(variables({{"CUDA_VISIBLE_DEVICES", "-1"}}));
  EXPECT_EQ(hidden,
            "CUDA_VISIBLE_DEVICES='-1' leaves this rank no GPU: unset it, name GPUs that nvidia-smi -L lists, or use "
            "--device cpu");
}

}  // namespace
}  // namespace gradmeter::runtime
