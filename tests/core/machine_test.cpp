// SPDX-License-Identifier: Apache-2.0
#include "core/machine.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"

namespace gradmeter::core {
namespace {

using testing::HasSubstr;

/// No number is its default.
Machine full_machine() {
  return {
      .name = "M",
      .ranks_per_node = 2,
      .within_node = {.name = "L",
                      .latency_s = 1e-6,
                      .overhead_s = 1e-7,
                      .bandwidth = {{0, 1e9}, {65536, 1e10 / 3}},
                      .groups = {{2, 1e9}, {8, 3e9}}},
      .between_nodes = {.latency_s = 2e-5, .overhead_s = 3e-7, .bandwidth = {{0, 1e8}}},
      .trunk = Link{.latency_s = 1e-5, .overhead_s = 2e-7, .bandwidth = {{0, 2e8}}},
      .node_port = {.bytes_per_s = 1.25e8},
      .reduce_bytes_per_s = 7e9,
      .flops_per_s = 1e11,
      .memory_bytes_per_s = 1e10,
      .compute = {{"gemm", "", "", 2e11}, {"gemm", "bf16", "", 4e11}, {"", "fp32", "square", 3e11}},
      .codecs = {{"int8", {.encode = 1e9, .decode = 2e9, .add = 3e9}}},
      .noise = 0.01,
      .device = DeviceProfile{.name = "D",
                              .source = "a data sheet",
                              .peaks = {{"bf16", 3e14}, {"fp32", 2e13}},
                              .memory_bytes = 8e10,
                              .memory_bytes_per_s = 2e12,
                              .multiprocessors = 108,
                              .tiles = {{64, 32, 0.5}},
                              .launch_s = 3e-6,
                              .power_w = 400,
                              .price_usd = 9999},
      .fit = MachineFit{.terms = {{"traffic", 1.7}}, .spread = 0.1, .ranks = 8, .rows = 3, .residuals = {{"a", -0.1}}}};
}

std::string machine_refusal(std::string_view text) {
  try {
    machine_from_json(text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Machine, EveryNumberSurvivesJson) {
  EXPECT_EQ(machine_from_json(to_json(full_machine())), full_machine());
  EXPECT_EQ(machine_from_json(to_json({})), Machine{});
  EXPECT_EQ(machine_from_json("{}"), Machine{});
}

TEST(Machine, AMessageTakesOverheadLatencyAndItsSizesBandwidth) {
  const Link link{.latency_s = 2, .overhead_s = 1, .bandwidth = {{0, 10}, {100, 50}}};
  EXPECT_DOUBLE_EQ(link.seconds(0), 3);
  EXPECT_DOUBLE_EQ(link.seconds(99), 3 + 9.9);
  EXPECT_DOUBLE_EQ(link.seconds(100), 3 + 2);
}

TEST(Machine, RanksOfOneNodeUseItsLink) {
  const Machine m = full_machine();
  EXPECT_EQ(&m.link(0, 1), &m.within_node);
  EXPECT_EQ(&m.link(1, 2), &m.between_nodes);
  const Machine one_node;
  EXPECT_EQ(&one_node.link(0, 1000), &one_node.within_node);
}

TEST(Machine, AGroupHasTheRateOfTheLargestThatIsNotLarger) {
  const Link link{.bandwidth = {{0, 7}}, .groups = {{2, 10}, {4, 30}}};
  EXPECT_DOUBLE_EQ(link.group_bytes_per_s(2), 10);
  EXPECT_DOUBLE_EQ(link.group_bytes_per_s(3), 10);
  EXPECT_DOUBLE_EQ(link.group_bytes_per_s(64), 30);
  EXPECT_DOUBLE_EQ(link.group_bytes_per_s(1), 10);
  const Link plain{.bandwidth = {{0, 7}}};
  EXPECT_DOUBLE_EQ(plain.group_bytes_per_s(2), 7) << "without groups the bandwidth holds";
}

TEST(Machine, TheMostExactComputeRateCounts) {
  const Machine m = full_machine();
  EXPECT_EQ(m.compute_rate("gemm", "bf16", "square"), 4e11);
  EXPECT_EQ(m.compute_rate("gemm", "fp32", "tall"), 2e11);
  EXPECT_EQ(m.compute_rate("gemm", "fp32", "square"), 3e11);
  EXPECT_EQ(m.compute_rate("softmax", "fp64", ""), 1e11);
}

TEST(Machine, RefusalsSayWhereAndWhatToDo) {
  EXPECT_THAT(machine_refusal("{"), HasSubstr("no JSON"));
  EXPECT_THAT(machine_refusal("[]"), HasSubstr("an object"));
  EXPECT_THAT(machine_refusal(R"({"lnk":1})"), HasSubstr("no key 'lnk'; write one of ranks_per_node"));
  EXPECT_THAT(machine_refusal(R"({"trunk":{"latency_s":-1}})"), HasSubstr("machine.trunk.latency_s"));
  EXPECT_THAT(machine_refusal(R"({"flops_per_s":0})"), HasSubstr("above 0"));
  EXPECT_THAT(machine_refusal(R"({"ranks_per_node":4294967296})"), HasSubstr("to 4294967295"));
  EXPECT_THAT(machine_refusal(R"({"within_node":{"bandwidth":[]}})"), HasSubstr("at least one entry"));
  EXPECT_THAT(machine_refusal(R"({"within_node":{"bandwidth":[{"from_bytes":1,"bytes_per_s":1}]}})"),
              HasSubstr("entries from 0"));
  EXPECT_THAT(machine_refusal(R"({"compute":[{"operation":"gemm"}]})"), HasSubstr("machine.compute.flops_per_s"));
  EXPECT_THAT(machine_refusal(R"({"device":{"tiles":[]}})"), HasSubstr("machine.device.tiles"));
  EXPECT_THAT(machine_refusal(R"({"device":{"peaks":{"bf16":0}}})"), HasSubstr("machine.device.peaks.bf16"));
  EXPECT_THAT(
      machine_refusal(R"({"within_node":{"groups":[{"ranks":8,"bytes_per_s":1},{"ranks":2,"bytes_per_s":1}]}})"),
      HasSubstr("each above the one before it"));
  EXPECT_THAT(machine_refusal(R"({"fit":{"terms":{"traffic":"x"}}})"), HasSubstr("machine.fit.terms.traffic"));
}

TEST(Machine, AFilesRefusalHasItsLine) {
  const auto said = [](std::string_view text) {
    try {
      machine_from_json(text, "m.json");
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(said("{\n \"compute\": [\n  {\"flops_per_s\": 1},\n  {\"speed\": 1}]}"),
              HasSubstr("m.json:4: machine: "));
  EXPECT_THAT(said("{\n \"trunk\": {},\n \"noise\": -1}"), HasSubstr("m.json:3: machine: machine.noise"));
  EXPECT_THAT(said("[]"), HasSubstr("m.json:1: "));
  EXPECT_THAT(said("{\n\n"), HasSubstr("m.json:3: machine: the text is no JSON"));
}

TEST(Machine, AMutatedTextIsRefusedInOneLineOrRead) {
  const std::string text = to_json(full_machine());
  std::uint64_t state = 1;
  const auto draw = [&](std::size_t n) {  // Knuth's MMIX generator
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>(state >> 33) % n;
  };
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string mutated = text;
    for (std::size_t k = draw(3) + 1; k > 0; --k) {
      if (draw(2) == 0)
        mutated.erase(draw(mutated.size()), draw(6));
      else
        mutated[draw(mutated.size())] = static_cast<char>(draw(256));
    }
    const std::string why = machine_refusal(mutated);  // any other exception ends the test
    refused += why != "accepted";
    EXPECT_EQ(why.find('\n'), std::string::npos) << why;
    if (why == "accepted") {
      const Machine m = machine_from_json(mutated);
      EXPECT_GT(m.within_node.bytes_per_s(1), 0);
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 20000);
}

}  // namespace
}  // namespace gradmeter::core
