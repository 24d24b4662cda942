// SPDX-License-Identifier: Apache-2.0
// Every algorithm with a schedule × collective × type × operation × placement × odd length, on ranks that are threads.
#include <gtest/gtest.h>

#include "support/collectives.hpp"
#include "support/sanitized.hpp"
#include "support/schedule_shapes.hpp"
#include "support/thread_ranks.hpp"

namespace gradmeter::allreduce {
namespace {

constexpr int channels = 3;
constexpr std::size_t message = 1024;  // bytes: many slices of every buffer
constexpr runtime::SpinPolicy spin_policy{.spins = 20, .yields = 0};

using test::CollectiveCase;

/// Many threads on few cores wait long for each other: fewer lengths there.
std::vector<std::size_t> counts_for(CollectiveKind collective_kind, std::uint32_t ranks) {
  if (ranks < 8) return test::odd_counts(collective_kind, ranks);
  if (collective_kind == CollectiveKind::all_to_all) return {ranks, 257 * ranks};
  return {ranks - 1, 5003};
}

/// And one size of nodes, with which there is more than one of them.
std::vector<RankShape> shapes_to_try(const AlgorithmChoice& algorithm, std::uint32_t ranks) {
  auto shapes = test::shapes_of(algorithm, ranks);
  if (ranks >= 8) std::erase_if(shapes, [](RankShape s) { return s.ranks_per_node != 1 && s.ranks_per_node != 4; });
  return shapes;
}

/// Exact data at every length, random data at the longest, and for small floats both ways to accumulate.
std::vector<CollectiveCase> cases_for(CollectiveKind collective_kind, Placement placement, std::uint32_t ranks) {
  std::vector<CollectiveCase> out;
  const bool reduces =
      collective_kind == CollectiveKind::all_reduce || collective_kind == CollectiveKind::reduce_scatter;
  for (const auto& [element, op] : test::types_and_ops()) {
    if (!reduces && op != Op::sum) continue;
    const auto counts = counts_for(collective_kind, ranks);
    for (const std::size_t count : counts) {
      for (const auto pattern : {Pattern::exact, Pattern::random}) {
        if (pattern == Pattern::random && count != counts.back()) continue;
        CollectiveCase c{.known = {.collective_kind = collective_kind,
                                   .data = {.pattern = pattern, .element = element, .op = op, .ranks = ranks},
                                   .count = count,
                                   .root = ranks - 1},
                         .placement = placement};
        out.push_back(c);
        if (!reduces || !core::is_small_float(element) || op != Op::sum) continue;
        c.accumulate_wide = true;
        out.push_back(c);
      }
    }
  }
  return out;
}

/// Runs all cases on `shape.ranks` threads; returns what was wrong, a line each.
std::vector<std::string> run_cases(const AlgorithmChoice& a, RankShape shape, CollectiveKind collective_kind,
                                   Placement placement) {
  const auto cases = cases_for(collective_kind, placement, shape.ranks);
  test::ThreadGroup group(static_cast<int>(shape.ranks), channels);
  std::vector<std::vector<test::CollectiveOutcome>> outcomes(shape.ranks);
  test::run_ranks(static_cast<int>(shape.ranks), [&](int r) {
    auto transport = group.transport(r);
    test::HeapArena arena(std::size_t{2} << 20), memory(std::size_t{2} << 20);
    const auto at = static_cast<std::size_t>(r);
    Executor executor({a.name, a.make(shape, collective_kind, shape.ranks - 1)}, *transport, arena,
                      {.placement = placement, .max_bytes = std::size_t{1} << 20, .message_bytes = message});
    for (const auto& c : cases) outcomes[at].push_back(run_known(executor, c, at, memory.memory(), spin_policy));
  });
  std::vector<std::string> faults;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (std::size_t r = 0; r < shape.ranks; ++r) {
      const auto& o = outcomes[r][i];
      if (!o.fault.empty()) faults.push_back(fmt::format("rank {}: {}", r, o.fault));
      if (same_on_all_ranks(collective_kind) && o.hash != outcomes[0][i].hash) {
        faults.push_back(fmt::format("rank {} holds other bits: {}", r, describe(cases[i])));
      }
    }
  }
  return faults;
}

std::vector<std::uint32_t> rank_counts() {
  if (test::sanitized)
    return {3, 4};            // a power of two with nodes of several ranks, and none: the protocol has no more to show
  return {1, 2, 3, 4, 5, 8};  // more ranks: executor_test
}

class Combinations : public ::testing::TestWithParam<std::tuple<std::string, std::uint32_t>> {};

TEST_P(Combinations, OfTypeOperationPlacementAndLengthAreRightOnEveryRank) {
  const auto& [name_of_algorithm, p] = GetParam();
  const auto algorithm = find_algorithm(name_of_algorithm);
  for (const CollectiveKind collective_kind : test::all_goals) {
    for (const RankShape shape : shapes_to_try(*algorithm, p)) {
      if (!algorithm->refusal(shape, collective_kind).empty()) continue;
      for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
        const auto faults = run_cases(*algorithm, shape, collective_kind, placement);
        EXPECT_TRUE(faults.empty()) << faults.size() << " faults; " << faults.front();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, Combinations,
                         ::testing::Combine(::testing::ValuesIn(test::scheduled_algorithms()),
                                            ::testing::ValuesIn(rank_counts())),
                         [](const auto& param) {
                           return test::test_name(
                               fmt::format("{}_p{}", std::get<0>(param.param), std::get<1>(param.param)));
                         });

TEST(Combinations, FindAnErrorMadeOnPurpose) {
  constexpr std::size_t ranks = 3;
  for (const CollectiveKind collective_kind : test::all_goals) {
    for (const auto& [element, op] : test::types_and_ops()) {
      if (collective_kind != CollectiveKind::all_reduce && op != Op::sum) continue;
      const KnownCollective k{
          .collective_kind = collective_kind, .data = {.element = element, .op = op, .ranks = ranks}, .count = 999};
      std::vector<std::byte> right(k.count * core::size_of(element));
      std::vector<std::vector<std::byte>> all;
      for (std::size_t r = 0; r < ranks; ++r) {
        all.push_back(right);
        write_input(k, r, all.back());
      }
      if (collective_kind != CollectiveKind::broadcast) continue;  // the root's input is already all ranks' answer
      EXPECT_EQ(check(k, 1, all[0]).wrong, 0u);
      inject_error(k, 1, all[0]);
      EXPECT_EQ(check(k, 1, all[0]).wrong, 1u);
    }
  }
}

}  // namespace
}  // namespace gradmeter::allreduce
