// SPDX-License-Identifier: Apache-2.0
// The devices and links of data/machines: found by the names that people use, with nothing that no source states.
#include "predict/machines.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "core/error.hpp"
#include "predict/score.hpp"

namespace gradmeter::predict {
namespace {

using ::testing::HasSubstr;

template <class Call>
std::string said_by(Call call) {
  try {
    call();
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Devices, AreFoundByTheNamesThatTablesUse) {
  EXPECT_EQ(find_device("a100_80gb"), find_device("A100"));
  EXPECT_EQ(find_device("h100_80gb")->profile.name, "H100 SXM5");
  EXPECT_EQ(find_device("V100-16GB")->profile.name, "V100 SXM2");
  EXPECT_EQ(find_device("abacus"), nullptr);
  for (const char* name :
       {"K80",   "M40",  "Titan X", "P100",   "P4",       "P40",    "V100",   "A100",   "H100",   "H200",      "B200",
        "GB200", "MI25", "MI250",   "MI300X", "KNL 7250", "TPU v1", "TPU v2", "TPU v3", "TPU v4", "Stratix 10"})
    EXPECT_NE(find_device(name), nullptr) << name;
}

TEST(Devices, EachHasASourceAndAPeakAndNoAliasOfAnother) {
  std::set<std::string> aliases;
  for (const ListedDevice& d : listed_devices()) {
    EXPECT_FALSE(d.profile.source.empty()) << d.profile.name;
    EXPECT_FALSE(d.profile.peaks.empty()) << d.profile.name;
    EXPECT_EQ(d.link.empty(), d.link_bytes_per_s == 0) << d.profile.name;
    EXPECT_TRUE(d.host_link.empty() || find_link(d.host_link) || d.host_link == "PCIe 3 x36") << d.profile.name;
    const std::set<std::string> own(d.aliases.begin(), d.aliases.end());
    for (const auto& a : own) EXPECT_TRUE(aliases.insert(a).second) << a;
  }
}

TEST(Devices, APrecisionThatADeviceLacksRunsInAnother) {
  EXPECT_DOUBLE_EQ(find_device("A100")->profile.peak("amp_bf16"), 312e12);
  EXPECT_DOUBLE_EQ(find_device("H100")->profile.peak("fp8"), 1979e12);
  EXPECT_DOUBLE_EQ(find_device("V100")->profile.peak("bf16"), 125e12) << "a GPU without bf16 takes fp16's rate";
  EXPECT_DOUBLE_EQ(find_device("K80")->profile.peak("fp16"), 4.37e12);
  EXPECT_DOUBLE_EQ(find_device("TPU v1")->profile.peak("fp32"), 0) << "whole numbers only";
}

TEST(Links, AreFoundAndHaveSources) {
  for (const char* name :
       {"1GbE", "10GbE", "25GbE", "40GbE", "100GbE", "200GbE", "400GbE", "EDR", "HDR", "NDR", "NVLink 1", "NVLink2",
        "NVLink3", "NVLink4", "NVLink5", "PCIe3", "PCIe4", "PCIe5", "PCIe 6 x16"})
    ASSERT_NE(find_link(name), nullptr) << name;
  EXPECT_DOUBLE_EQ(find_link("400GbE")->link.bandwidth.front().bytes_per_s, 50e9);
  for (const ListedLink& l : listed_links()) {
    EXPECT_FALSE(l.source.empty()) << l.link.name;
    EXPECT_GT(l.link.bandwidth.front().bytes_per_s, 0) << l.link.name;
  }
  const core::Link& cube = find_link("NVLink2")->link;
  EXPECT_DOUBLE_EQ(cube.group_bytes_per_s(2), 22.6e9);
  EXPECT_DOUBLE_EQ(cube.group_bytes_per_s(3), 22.6e9);
  EXPECT_DOUBLE_EQ(cube.group_bytes_per_s(8), 85.6e9);
}

TEST(Connect, TakesNamesRatesAndSeveralPorts) {
  core::Machine m = machine_of(*find_device("H100"), 8);
  connect(m, "--link", "8xNDR");
  EXPECT_DOUBLE_EQ(m.node_port.bytes_per_s, 400e9);
  connect(m, "--link", "400Gbit/s");
  EXPECT_DOUBLE_EQ(m.node_port.bytes_per_s, 50e9);
  connect(m, "--link", "2x12.5GB/s");
  EXPECT_DOUBLE_EQ(m.node_port.bytes_per_s, 25e9);
  for (const char* wrong : {"", "x", "0xNDR", "8x", "NDRR", "-1GB/s", "4furlongs"})
    EXPECT_THAT(said_by([&] { connect(m, "--link", wrong); }), HasSubstr("--link: ")) << wrong;
}

TEST(Connect, AFittedRateBetweenNodesChangesInProportion) {
  core::Machine m = machine_of(*find_device("H100"), 8);
  connect(m, "--link", "NDR");
  m.fit = core::MachineFit{.terms = {{"between_rate", 40e9}}};
  connect(m, "--link", "100GbE");
  EXPECT_DOUBLE_EQ(m.fit->terms.at("between_rate"), 10e9);
  connect(m, "--link", "50GB/s");
  EXPECT_DOUBLE_EQ(m.fit->terms.at("between_rate"), 40e9);
  core::Machine guessed = machine_of(*find_device("H100"), 8);
  guessed.fit = m.fit;
  connect(guessed, "--link", "NDR");
  EXPECT_FALSE(guessed.fit->terms.contains("between_rate")) << "a share of unknown links says nothing of others";
}

class MachineFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    path_ = (std::filesystem::path(::testing::TempDir()) / "predict_machine.json").string();
    std::ofstream(path_) << text;
    return path_;
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST_F(MachineFile, IsReadAsItWasWritten) {
  core::Machine m = machine_of(*find_device("V100"), 4);
  m.fit = core::MachineFit{
      .terms = {{"product_share", 0.5}}, .spread = 0.1, .ranks = 16, .rows = 2, .residuals = {{"a", -0.05}}};
  EXPECT_EQ(machine_named(write(core::to_json(m, 2)), 8), m);
}

TEST_F(MachineFile, ABadOneIsRefusedWithFileAndLine) {
  const auto said = [&](const std::string& text) { return said_by([&] { machine_named(write(text), 8); }); };
  EXPECT_THAT(said("{\n\"device\": {\n\"peeks\": {}}}"),
              HasSubstr("predict_machine.json:3: machine: machine.device has no key 'peeks'"));
  EXPECT_THAT(said("{\n\n\"trunk\": {\"latency_s\":\n -1}}"),
              HasSubstr("predict_machine.json:3: machine: machine.trunk.latency_s"));
  EXPECT_THAT(said("{\n\"noise\": 0,\n}"), HasSubstr("predict_machine.json:3: machine: the text is no JSON"));
  EXPECT_THAT(said("{}"), HasSubstr("there is no device"));
  EXPECT_THAT(said("{\"device\": {\"peaks\": {\"fp32\": -1}}}"),
              HasSubstr(":1: machine: machine.device.peaks.fp32 is not usable"));
  EXPECT_THAT(said_by([] { machine_named("no_such_thing", 8); }), HasSubstr("there are K80, M40"));
}

TEST_F(MachineFile, AFitThatWasWrittenPredictsTheSame) {
  std::vector<TrainingStep> rows;
  for (const std::size_t gpus : {8u, 16u, 32u}) {
    TrainingStep s;
    s.id = std::to_string(gpus);
    s.system = "s";
    s.gpu = "A100";
    s.model = "gpt";
    s.precision = "bf16";
    s.gpus_per_node = 8;
    s.gpus = gpus;
    s.layers = 24, s.hidden = 4096, s.heads = 32, s.sequence = 2048;
    s.global_batch = 8 * gpus;
    s.step_s = 3;
    rows.push_back(s);
  }
  const Calibration calibration(rows);
  TrainingStep far = rows.front();
  far.gpus = 512;
  far.global_batch = 8 * 512;
  const core::Machine fitted = calibration.machine(far);
  const core::Machine again = machine_named(write(core::to_json(fitted)), 8);
  EXPECT_EQ(again, fitted);
  EXPECT_EQ(again.fit->residuals.size(), 3u);
  far.layers = 32;  // no row is of this network, so nothing but the fit is used
  const auto by_file = Calibration({}).predict(far, again).prediction.value(),
             by_rows = calibration.predict(far).prediction.value();
  EXPECT_DOUBLE_EQ(by_file.seconds, by_rows.seconds);
  EXPECT_DOUBLE_EQ(by_file.low, by_rows.low);
  const auto by_sheet = Calibration({}).predict(far).prediction.value();
  EXPECT_GT(std::abs(by_sheet.seconds / by_file.seconds - 1), 0.05) << "the fit says something else";
}

}  // namespace
}  // namespace gradmeter::predict
