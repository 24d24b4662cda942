// SPDX-License-Identifier: Apache-2.0
#include "bench/links/group_search.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <stdexcept>

#include "core/error.hpp"

namespace gradmeter::bench {
namespace {

/// Nodes of which some take longer, measured with noise, and now and then a disturbance that has nothing to do with
/// them.
struct NoisyNodes {
  std::set<int> slow;
  double slowdown = 1.6, noise = 0.05, disturbed_share = 0.02, disturbance = 2;
  std::mt19937 draw{1};

  std::vector<double> operator()(std::span<const NodeGroup> groups) {
    std::set<int> seen;
    std::vector<double> out;
    for (const NodeGroup& g : groups) {
      EXPECT_GE(g.size(), 2U);
      for (const int node : g) EXPECT_TRUE(seen.insert(node).second) << "node " << node << " is in two groups at once";
      const bool has_slow = std::any_of(g.begin(), g.end(), [&](int node) { return slow.contains(node); });
      const bool disturbed = std::bernoulli_distribution(disturbed_share)(draw);
      const double factor = std::exp(std::normal_distribution<double>(0, noise)(draw));
      out.push_back((has_slow ? slowdown : 1) * factor * (disturbed ? disturbance : 1));
    }
    return out;
  }
};

std::set<int> drawn(int count, int nodes, std::mt19937& draw) {
  std::set<int> out;
  while (static_cast<int>(out.size()) < count) out.insert(std::uniform_int_distribution<int>(0, nodes - 1)(draw));
  return out;
}

struct Tally {
  std::size_t missed = 0, wrongly = 0, most_tests = 0;
  double tests = 0;
};

constexpr int simulated_nodes = 1024, repeats = 50;

Tally simulate(int k, double noise, double disturbed_share) {
  Tally t;
  std::mt19937 draw(static_cast<unsigned>(k));
  for (unsigned seed = 0; seed < repeats; ++seed) {
    NoisyNodes nodes{.slow = drawn(k, simulated_nodes, draw), .noise = noise, .disturbed_share = disturbed_share};
    nodes.draw.seed(seed);
    const auto found = find_slow_nodes(simulated_nodes, {}, seed, std::ref(nodes));
    for (const int s : nodes.slow) t.missed += !std::binary_search(found.slow.begin(), found.slow.end(), s);
    for (const int s : found.slow) t.wrongly += !nodes.slow.contains(s);
    t.tests += static_cast<double>(found.tests) / repeats;
    t.most_tests = std::max(t.most_tests, found.tests);
  }
  return t;
}

class GroupSearchOf : public testing::TestWithParam<int> {};

TEST_P(GroupSearchOf, FindsExactlyTheSlowNodesWithoutNoise) {
  const Tally t = simulate(GetParam(), 0, 0);
  EXPECT_EQ(t.missed, 0U);
  EXPECT_EQ(t.wrongly, 0U);
}

TEST_P(GroupSearchOf, FindsThemInNoiseInAboutFourKLogTests) {
  const int k = GetParam();
  const Tally t = simulate(k, 0.05, 0.02);
  const double bound = 4 * k * std::log2(double(simulated_nodes) / k);
  RecordProperty("tests", std::to_string(t.tests));
  std::printf("k %d: %.0f tests (most %zu), 4 k log2(n/k) = %.0f; of %d missed %zu, wrongly named %zu\n", k, t.tests,
              t.most_tests, bound, k * repeats, t.missed, t.wrongly);
  EXPECT_LE(t.tests, 1.1 * bound + 4);
  EXPECT_LE(static_cast<double>(t.missed), 0.01 * k * repeats);
  EXPECT_LE(static_cast<double>(t.wrongly), 0.01 * k * repeats);
}

INSTANTIATE_TEST_SUITE_P(SlowNodes, GroupSearchOf, testing::Values(1, 2, 3, 5, 8, 16));

TEST(GroupSearch, FindsNoneInNoiseWhereThereIsNone) {
  const Tally t = simulate(0, 0.05, 0.02);
  EXPECT_EQ(t.wrongly, 0U);
  EXPECT_LE(t.tests, 18) << "the first groups, and those that were disturbed once more";
}

TEST(GroupSearch, TwoSlowNodesOfFourAreFoundBesideTheOthers) {
  // All four may be in two groups of one slow node each: nothing is usual then.
  for (unsigned seed = 0; seed < 20; ++seed) {
    NoisyNodes nodes{.slow = {2}, .noise = 0, .disturbed_share = 0};
    EXPECT_THAT(find_slow_nodes(4, {}, seed, std::ref(nodes)).slow, testing::ElementsAre(2));
  }
}

TEST(GroupSearch, ADisturbanceThatGoesByIsGivenUp) {
  std::size_t calls = 0;
  const auto found = find_slow_nodes(64, {}, 1, [&](std::span<const NodeGroup> groups) {
    std::vector<double> times(groups.size(), 1.0);
    if (++calls <= 2) times.front() = 3;  // twice, so that the group is halved
    return times;
  });
  EXPECT_THAT(found.slow, testing::IsEmpty());
  EXPECT_EQ(found.disturbed_groups, 1U);
}

TEST(GroupSearch, EndsForEveryNumberOfNodes) {
  // One fast group makes the usual time unsure, and many slow nodes make most groups slow: both halve the groups until
  // they are small. A group of three must not be halved there, since no partner is known for its single node.
  const auto fast = [](const NodeGroup& g) { return std::ranges::find(g, 0) == g.end() ? 1.0 : 0.6; };
  const auto slow = [](const NodeGroup& g) {
    return std::ranges::any_of(g, [](int node) { return node % 3 == 0; }) ? 2.0 : 1.0;
  };
  for (const std::function<double(const NodeGroup&)>& time : {std::function(fast), std::function(slow)}) {
    for (int nodes = 4; nodes <= 1000; ++nodes) {
      std::size_t rounds = 0;
      const auto found = find_slow_nodes(nodes, {}, 1, [&](std::span<const NodeGroup> groups) {
        if (++rounds > 1000) throw std::runtime_error("the search does not end");
        std::vector<double> times;
        for (const NodeGroup& g : groups) {
          EXPECT_GE(g.size(), 2U);
          times.push_back(time(g));
        }
        return times;
      });
      EXPECT_EQ(found.rounds, rounds) << nodes << " nodes";
    }
  }
}

TEST(GroupSearch, TooFewNodesAreRefused) {
  EXPECT_THROW(find_slow_nodes(3, {}, 1, [](auto groups) { return std::vector<double>(groups.size(), 1.0); }),
               core::UsageError);
}

}  // namespace
}  // namespace gradmeter::bench
