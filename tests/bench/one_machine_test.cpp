// SPDX-License-Identifier: Apache-2.0
// One description of a machine is read by all that predicts: forecasts of strategies, the choice of algorithms, limits,
// estimates of codecs, and virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "allreduce/registry.hpp"
#include "allreduce/selection/selection.hpp"
#include "bench/engine/link_probe.hpp"
#include "compression/crossover.hpp"
#include "core/machine.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "dataparallel/strategy.hpp"
#include "support/mlp.hpp"

namespace gradmeter::bench {
namespace {

constexpr std::uint32_t machine_ranks = 4;

core::Machine machine_with(double bytes_per_s) {
  core::Machine m{.reduce_bytes_per_s = 1e10, .flops_per_s = 1e11, .memory_bytes_per_s = 1e10};
  m.within_node = {.latency_s = 1e-6, .bandwidth = {{.bytes_per_s = bytes_per_s}}};
  m.codecs["qsgd8"] = {.encode = 1e9, .decode = 2e9, .add = 3e9};
  return m;
}

/// What each reader makes of a machine, as text.
using Readings = std::map<std::string, std::string>;

void read_strategies(const core::Machine& m, Readings& r) {
  const model::Mlp model({784, 128, 10});
  for (const auto& row : dataparallel::strategies()) {
    const auto choice = dataparallel::find_strategy(row.name);
    if (!choice->communicates()) continue;
    const auto forecast = choice->make({})->predict({.ranks = machine_ranks,
                                                     .tensors = model.tensors(),
                                                     .elements = model.element_count(),
                                                     .steps = 64,
                                                     .machine = m});
    r["predict " + choice->name] = std::to_string(forecast.seconds * 1e9);
  }
}

Readings read(const core::Machine& m) {
  Readings r;
  read_strategies(m, r);
  r["auto"] = allreduce::predicted_table(m, allreduce::find_algorithm("ring")->request({machine_ranks, machine_ranks}));
  r["limits"] = std::to_string(exchange_time_bound({.by_busiest_rank = 1e6, .by_busiest_node = 0}, m).value * 1e9);
  r["codec estimate"] = std::to_string(compression::estimate(m, "qsgd8", machine_ranks, 1 << 20, 8).predicted_s * 1e9);
  const auto ends = dataparallel::SimWorld(machine_ranks, {.machine = m}).run([](dataparallel::Fabric& f) {
    f.wait(f.all_reduce(dataparallel::everybody, f.memory(1 << 16), allreduce::Op::sum));
  });
  r["virtual time"] = std::to_string(ends.front() * 1e9);
  return r;
}

std::vector<std::string> unmoved(const Readings& before, const Readings& after) {
  std::vector<std::string> names;
  for (const auto& [name, text] : before) {
    if (after.at(name) == text) names.push_back(name);
  }
  return names;
}

TEST(OneMachine, AllReadersMoveWithOneOfItsNumbers) {
  const Readings before = read(machine_with(1e10));
  EXPECT_GE(before.size(), 4u + 10u) << "every strategy that communicates";
  EXPECT_THAT(unmoved(before, read(machine_with(1e10))), ::testing::SizeIs(before.size())) << "nothing else moves them";
  Readings after = read(machine_with(1e8));
  EXPECT_THAT(unmoved(before, after), ::testing::IsEmpty());
  after["limits"] = before.at("limits");  // as a reader with a description of its own would have it
  EXPECT_THAT(unmoved(before, after), ::testing::ElementsAre("limits"));
}

TEST(OneMachine, IsTheSameAfterAFile) {
  const core::Machine m = machine_with(3e9);
  EXPECT_EQ(read(core::machine_from_json(core::to_json(m))), read(m));
}

}  // namespace
}  // namespace gradmeter::bench
