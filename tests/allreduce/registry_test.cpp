// SPDX-License-Identifier: Apache-2.0
#include "allreduce/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "core/error.hpp"
#include "core/format.hpp"
#include "support/schedule_shapes.hpp"

namespace gradmeter::allreduce {
namespace {

using enum CollectiveKind;
using ::testing::HasSubstr;

bool always(RankShape) { return true; }
bool power_of_two(RankShape s) { return std::has_single_bit(s.ranks); }
bool even_nodes(RankShape s) { return s.ranks_per_node > 0 && s.ranks % s.ranks_per_node == 0; }
bool composite(RankShape s) {
  for (std::uint32_t a = 2; a < s.ranks; ++a) {
    if (s.ranks % a == 0) return true;
  }
  return false;
}
bool even(RankShape s) { return s.ranks % 2 == 0; }

/// What these algorithms support; the rest is refused, with a text that says `reason`. An algorithm that is not here
/// supports what it does not refuse.
struct Supported {
  const char* algorithm;
  std::vector<CollectiveKind> goals;
  bool (*where)(RankShape) = always;
  const char* reason = "";
};
const std::vector<Supported>& supported() {
  static const std::vector<Supported> table{
      {"bcube", {all_reduce, reduce_scatter, all_gather}},
      {"binomial-tree", {all_reduce, broadcast}},
      {"direct", {all_reduce, reduce_scatter, all_gather, broadcast, all_to_all}},
      {"double-tree", {all_reduce}},
      {"hierarchical-lane", {all_reduce}, even_nodes, "nodes"},
      {"hierarchical-leader", {all_reduce}, even_nodes, "nodes"},
      {"neighbour", {send_receive}},
      {"one-shot", {all_reduce}},
      {"pairwise", {all_to_all}},
      {"rabenseifner", {all_reduce}},
      {"rabenseifner", {reduce_scatter, all_gather}, power_of_two, "powers of two"},
      {"recursive-doubling", {all_reduce}},
      {"ring", {all_reduce, reduce_scatter, all_gather}},
      {"swing", {all_reduce}, power_of_two, "powers of two"},
      {"torus2d", {all_reduce}, composite, "two sides above 1"},
      {"torus2d:rows=2", {all_reduce}, even, "does not divide"},
  };
  return table;
}

const Supported* row_of(const std::string& algorithm, CollectiveKind collective_kind) {
  for (const auto& row : supported()) {
    if (row.algorithm == algorithm && std::ranges::count(row.goals, collective_kind)) return &row;
  }
  return nullptr;
}

void expect_as_stated(const AlgorithmChoice& choice, const Supported* row, CollectiveKind collective_kind,
                      RankShape shape) {
  const std::string refusal = choice.refusal(shape, collective_kind);
  const auto where = fmt::format("{} {} p {} ranks per node {}", choice.name, name(collective_kind), shape.ranks,
                                 shape.ranks_per_node);
  if (row && row->where(shape)) {
    EXPECT_EQ(refusal, "") << where;
    return;
  }
  EXPECT_THAT(refusal, HasSubstr(row ? row->reason : std::string("has no ") + std::string(name(collective_kind))))
      << where;
  EXPECT_NE(refusal, "") << where;
  EXPECT_THROW(choice.make(shape, collective_kind), core::UsageError) << where;
}

/// Refused with a reason, or made; and every algorithm is there for something.
void expect_consistent(const AlgorithmChoice& choice, std::span<const RankShape> shapes) {
  bool serves = false;
  for (const CollectiveKind collective_kind : test::all_goals) {
    for (const RankShape shape : shapes) {
      const bool refuses = !choice.refusal(shape, collective_kind).empty();
      const auto where = fmt::format("{} {} p {} ranks per node {}", choice.name, name(collective_kind), shape.ranks,
                                     shape.ranks_per_node);
      if (refuses) {
        EXPECT_THROW(choice.make(shape, collective_kind), core::UsageError) << where;
      } else {
        EXPECT_FALSE(choice.make(shape, collective_kind).empty()) << where;
        serves = true;
      }
    }
  }
  EXPECT_TRUE(serves) << choice.name << " refuses every collective for every number of ranks";
}

std::vector<RankShape> shapes_to_ask_for() {
  std::vector<std::uint32_t> counts{100, 127, 128, 1000, 1024};
  for (std::uint32_t p = 1; p <= 64; ++p) counts.push_back(p);
  std::vector<RankShape> out;
  for (const std::uint32_t p : counts) {
    for (const std::uint32_t g : {0u, 1u, 2u, 3u, 4u, 8u, p}) out.push_back({p, g});
  }
  return out;
}

TEST(Registry, SupportsWhatItsTableStatesAndRefusesTheRestWithAReason) {
  const std::vector<RankShape> shapes = shapes_to_ask_for();
  std::vector<std::string> names{"torus2d:rows=2"};
  for (const auto& a : algorithms()) {
    if (a.backend == Backend::schedule) names.emplace_back(a.name);
  }
  for (const auto& algorithm : names) {
    const auto choice = find_algorithm(algorithm);
    expect_consistent(*choice, shapes);
    if (std::ranges::none_of(supported(), [&](const Supported& s) { return s.algorithm == algorithm; })) continue;
    for (const CollectiveKind collective_kind : test::all_goals) {
      const Supported* row = row_of(algorithm, collective_kind);
      for (const RankShape shape : shapes) expect_as_stated(*choice, row, collective_kind, shape);
    }
  }
}

TEST(Registry, RowsStandInAlphabeticalOrder) {
  EXPECT_TRUE(std::ranges::is_sorted(algorithms(), {}, &AlgorithmInfo::name));
}

TEST(Registry, AnUnknownAlgorithmIsRefusedWithTheListOfThoseThatExist) {
  try {
    find_algorithm("carousel");
    FAIL() << "accepted";
  } catch (const core::UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("carousel"));
    EXPECT_THAT(e.what(), HasSubstr("recursive-doubling"));
  }
}

TEST(Registry, WritesOutParametersInTheName) {
  EXPECT_EQ(find_algorithm("bcube")->name, "bcube:base=4");
  EXPECT_EQ(find_algorithm("bcube:base=04")->name, "bcube:base=4") << "equal values have one name";
  EXPECT_EQ(find_algorithm("torus2d:rows=2")->name, "torus2d:rows=2");
  EXPECT_EQ(find_algorithm("ring")->name, "ring");
}

TEST(Registry, RefusesAParameterThatTheAlgorithmCannotUse) {
  for (const char* bad :
       {"bcube:base=1", "bcube:base=0", "bcube:base=-2", "bcube:base=two", "bcube:base=4.5", "bcube:base=99999999999",
        "bcube:bas=4", "bcube:4", "torus2d:rows=x", "torus2d:rows=-1", "ring:rows=2"}) {
    EXPECT_THROW(find_algorithm(bad), core::UsageError) << bad;
  }
}

TEST(Registry, TheTorusIsAsNearlySquareAsTheRanksAllow) {
  // Cost tells the sides: 2(rows + columns - 2) rounds.
  const auto torus = find_algorithm("torus2d");
  EXPECT_EQ(torus->cost({64, 1}).rounds, 2u * (8 + 8 - 2));
  EXPECT_EQ(torus->cost({12, 1}).rounds, 2u * (3 + 4 - 2));
  EXPECT_EQ(torus->cost({1000, 1}).rounds, 2u * (25 + 40 - 2));
  EXPECT_EQ(find_algorithm("torus2d:rows=2")->cost({12, 1}).rounds, 2u * (2 + 6 - 2));
}

TEST(ShapeOf, TellsEvenNodesFromOthers) {
  auto per_node = [](std::vector<int> node_of) { return shape_of(node_of).ranks_per_node; };
  EXPECT_EQ(per_node({0}), 1u);
  EXPECT_EQ(per_node({0, 0, 0}), 3u);
  EXPECT_EQ(per_node({0, 0, 1, 1}), 2u);
  EXPECT_EQ(per_node({3, 1, 2}), 1u);
  EXPECT_EQ(per_node({0, 0, 1}), 0u);
  EXPECT_EQ(per_node({0, 1, 1}), 0u);
  EXPECT_EQ(per_node({0, 1, 0, 1}), 0u);
  EXPECT_EQ(per_node({0, 0, 1, 1, 0, 0}), 0u);
  EXPECT_EQ(per_node({0, 0, 1, 2}), 0u);
}

}  // namespace
}  // namespace gradmeter::allreduce
