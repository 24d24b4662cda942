// SPDX-License-Identifier: Apache-2.0
#include "predict/collective.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "allreduce/executor/executor.hpp"
#include "allreduce/schedule/cost_model.hpp"
#include "core/format.hpp"
#include "support/machines.hpp"
#include "support/schedule_shapes.hpp"

namespace gradmeter::predict {
namespace {

using allreduce::CollectiveKind;
using allreduce::find_algorithm;
constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;

core::Machine one_class() { return test::linked(2e-5, 1e9, 5e9); }
/// Nodes of `node` ranks behind links of a tenth of the rate; their port carries two such links.
core::Machine two_classes(std::uint32_t node) {
  core::Machine m = one_class();
  m.ranks_per_node = node;
  m.between_nodes = {.latency_s = 5e-5, .bandwidth = {{.bytes_per_s = 1e8}}};
  m.node_port.bytes_per_s = 2e8;
  return m;
}

struct Worst {
  double ratio = 1;
  std::string where = {};
  void take(double formula, double walk, const std::string& what) {
    const double r = formula / walk;
    if (std::abs(std::log(r)) > std::abs(std::log(ratio))) ratio = r, where = what;
  }
};

/// The largest ratio of closed form and walk over all kinds, shapes and sizes of an algorithm.
Worst worst_of(const std::string& name, const std::vector<std::uint32_t>& ranks, const std::vector<std::size_t>& sizes,
               const core::Machine& machine, bool in_slices) {
  Worst worst;
  const auto algorithm = find_algorithm(name);
  for (const CollectiveKind kind : test::all_goals)
    for (const std::uint32_t p : ranks)
      for (const std::uint32_t g : {1u, 2u, 4u}) {
        if (p % g != 0 || (g > 1 && machine.ranks_per_node != g && machine.ranks_per_node != 0)) continue;
        if (machine.ranks_per_node > 0 && (machine.ranks_per_node != g || p <= g)) continue;
        if (!algorithm->refusal({p, g}, kind).empty()) continue;
        for (const std::size_t bytes : sizes) {
          const CollectiveCall call{.algorithm = algorithm,
                                    .shape = {p, g},
                                    .bytes = bytes,
                                    .kind = kind,
                                    .message_bytes = in_slices ? 64 * KiB : std::size_t{1} << 40};
          const double walk = walked_seconds(call, machine);
          if (walk == 0) {
            EXPECT_EQ(formula_seconds(call, machine), 0) << name;
            continue;
          }
          worst.take(formula_seconds(call, machine), walk,
                     fmt::format("{} {} p={} g={} bytes={}", name, allreduce::name(kind), p, g, bytes));
        }
      }
  return worst;
}

const std::vector<std::size_t> sizes{16 * KiB, MiB, 16 * MiB};

TEST(CollectiveFormula, IsTheWalkOfOneSliceOnOneClassOfLinks) {
  for (const std::string& name : test::scheduled_algorithms()) {
    if (name == "double-tree") continue;
    const Worst w = worst_of(name, {2, 4, 8, 16, 64}, sizes, one_class(), false);
    EXPECT_NEAR(w.ratio, 1, 1e-3) << w.where;
  }
}

TEST(CollectiveFormula, IsNearTheWalkOfOneSliceForAnyRanks) {
  for (const std::string& name : test::scheduled_algorithms()) {
    // Trees that are not full, and ranks that are folded into others, have shorter ways than the longest.
    const bool is_partial = name == "double-tree" || name == "binomial-tree" || name == "recursive-doubling" ||
                            name == "rabenseifner" || name == "hierarchical-leader";
    const Worst w = worst_of(name, {3, 5, 6, 7, 12, 23, 48}, sizes, one_class(), false);
    EXPECT_NEAR(w.ratio, 1, is_partial ? 0.55 : 0.15) << w.where;
  }
}

/// The walk takes slices in a static order, so that a message waits for all that are named before it.
TEST(CollectiveFormula, IsNotFarFromTheWalkOfManySlices) {
  for (const std::string& name : test::scheduled_algorithms()) {
    const Worst w = worst_of(name, {2, 3, 5, 6, 8, 12, 16, 23, 32}, sizes, one_class(), true);
    EXPECT_GT(w.ratio, 0.6) << w.where;
    EXPECT_LT(w.ratio, 1.55) << w.where;
  }
}

/// Ranks of a node share its port. Exchanges of all with all are left out: the walk serves them in the order of ranks.
TEST(CollectiveFormula, IsNearTheWalkOnNodes) {
  for (const char* name : {"ring", "hierarchical-lane", "rabenseifner", "recursive-doubling", "neighbour"})
    for (const std::uint32_t node : {2u, 4u}) {
      const Worst w = worst_of(name, {8, 16, 32}, sizes, two_classes(node), false);
      EXPECT_NEAR(w.ratio, 1, 0.25) << w.where;
    }
}

/// Times of results/smpi.md: an independent simulator at 10 us and 12.5 GB/s, where sums take no time [s].
TEST(CollectiveWalk, AgreesWithSmpi) {
  struct Row {
    const char* algorithm;
    std::uint32_t ranks;
    std::size_t bytes;
    double seconds;
  };
  constexpr std::size_t short_one = 64 << 10, middle = 1 << 20, long_one = 25'000'000;
  for (const Row& row :
       {Row{"ring", 64, short_one, 1.27e-3}, Row{"ring", 64, middle, 1.425e-3}, Row{"ring", 64, long_one, 5.198e-3},
        Row{"ring", 256, short_one, 5.111e-3}, Row{"ring", 256, middle, 5.268e-3}, Row{"ring", 256, long_one, 9.085e-3},
        Row{"rabenseifner", 64, short_one, 0.1303e-3}, Row{"rabenseifner", 64, middle, 0.2852e-3},
        Row{"rabenseifner", 64, long_one, 4.058e-3}, Row{"rabenseifner", 256, short_one, 0.1705e-3},
        Row{"rabenseifner", 256, middle, 0.3271e-3}, Row{"rabenseifner", 256, long_one, 4.144e-3},
        Row{"double-tree", 64, short_one, 0.2354e-3}, Row{"double-tree", 64, middle, 0.457e-3},
        Row{"double-tree", 64, long_one, 5.69e-3}, Row{"double-tree", 256, short_one, 0.3173e-3},
        Row{"double-tree", 256, middle, 0.5809e-3}, Row{"double-tree", 256, long_one, 6.729e-3}}) {
    const double walked = walked_seconds({.algorithm = allreduce::find_algorithm(row.algorithm),
                                          .shape = {row.ranks, 1},
                                          .bytes = row.bytes,
                                          .message_bytes = std::size_t{1} << 20},
                                         test::linked(10e-6, 12.5e9, 1e30));
    // With eight slices under way, which of them goes first at a port matters most.
    const bool is_hardest = row.bytes == middle && row.algorithm == std::string_view("double-tree");
    EXPECT_NEAR(walked / row.seconds, 1, is_hardest ? 0.07 : 0.05)
        << row.algorithm << " of " << row.bytes << " bytes on " << row.ranks;
  }
}

TEST(CollectiveWalk, OfThreeNodesIsThatOfAll) {
  for (const char* name : {"ring", "hierarchical-lane", "neighbour"})
    for (const std::uint32_t node : {1u, 2u, 4u})
      for (const std::uint32_t nodes : {4u, 5u, 9u}) {
        const core::Machine machine = two_classes(node);
        const auto kind =
            std::string_view(name) == "neighbour" ? CollectiveKind::send_receive : CollectiveKind::all_reduce;
        const std::uint32_t p = node * nodes;
        const CollectiveCall call{
            .algorithm = find_algorithm(name), .shape = {p, node}, .bytes = std::size_t{p} * 64 * KiB, .kind = kind};
        const auto schedules = call.algorithm->make(call.shape, kind);
        const auto slices =
            allreduce::Executor::slices({name, schedules}, {.message_bytes = call.message_bytes}, call.bytes / 4, 4);
        const auto all = allreduce::hockney_finish_times(schedules, slices, 4, std::vector<double>(p, 0.0), machine);
        EXPECT_NEAR(walked_seconds(call, machine) / std::ranges::max(all), 1, 1e-9)
            << name << " " << node << " " << nodes;
      }
}

TEST(CollectiveSeconds, ManyRanksAreWithinReach) {
  const CollectiveCall call{.algorithm = find_algorithm("ring"), .shape = {65536, 8}, .bytes = 256 * MiB};
  const core::Machine machine = two_classes(8);
  const double chain = 2 * 65535 * (5e-5 / 8 + 2e-5 * 7 / 8);
  EXPECT_GT(collective_seconds(call, machine), chain);
  EXPECT_LT(collective_seconds(call, machine), 2 * chain);
}

}  // namespace
}  // namespace gradmeter::predict
