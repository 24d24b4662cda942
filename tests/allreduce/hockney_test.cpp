// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/cost_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "allreduce/registry.hpp"
#include "support/machines.hpp"

namespace gradmeter::allreduce {
namespace {

/// Of a buffer of fp32 in one slice.
std::vector<double> finish_times(const SchedulePtr& s, std::size_t elements, const std::vector<double>& begin,
                                 const core::Machine& machine) {
  const Slices whole(SliceCut::run, elements, sizeof(float), s->blocks(), elements, true);
  return hockney_finish_times(std::span(&s, 1), whole, sizeof(float), begin, machine);
}

using test::linked;

/// α, n/bandwidth, n/reduction rate [s], and log2 p.
struct Terms {
  double latency, transfer, reduction, levels, fraction;
};

struct Textbook {
  const char* algorithm;
  double (*time)(std::uint32_t p, Terms);
};
constexpr Textbook textbook[] = {
    {"ring",
     [](std::uint32_t p, Terms t) { return 2 * (p - 1) * t.latency + t.fraction * (2 * t.transfer + t.reduction); }},
    {"recursive-doubling", [](std::uint32_t, Terms t) { return t.levels * (t.latency + t.transfer + t.reduction); }},
    {"rabenseifner",
     [](std::uint32_t, Terms t) { return 2 * t.levels * t.latency + t.fraction * (2 * t.transfer + t.reduction); }},
    {"swing",
     [](std::uint32_t, Terms t) { return 2 * t.levels * t.latency + t.fraction * (2 * t.transfer + t.reduction); }},
    {"direct", [](std::uint32_t, Terms t) { return 2 * t.latency + t.fraction * (2 * t.transfer + t.reduction); }},
    {"binomial-tree", [](std::uint32_t, Terms t) { return t.levels * (2 * t.latency + 2 * t.transfer + t.reduction); }},
};

TEST(Hockney, AlgorithmsTakeTheirTextbookTimes) {
  const core::Machine machine = linked(1e-5, 1e9, 1e10);
  const std::size_t n = 1 << 20;
  for (const auto& [algorithm, time] : textbook) {
    double levels = 0;
    for (std::uint32_t p : {2u, 4u, 8u, 16u}) {
      ++levels;
      const auto s = find_algorithm(algorithm)->make({p, 1}).front();
      const auto end = finish_times(s, n, std::vector<double>(p, 0.0), machine);
      const Terms terms{1e-5, 4.0 * double(n) / 1e9, 4.0 * double(n) / 1e10, levels, double(p - 1) / p};
      EXPECT_NEAR(*std::max_element(end.begin(), end.end()), time(p, terms), 1e-9) << algorithm << " p " << p;
    }
  }
}

TEST(Hockney, EachMessageTakesTheLinkOfItsRanks) {
  core::Machine m = linked(0.5, 2, 1e30);
  m.ranks_per_node = 2;
  m.between_nodes = {.latency_s = 1, .bandwidth = {{0, 1}, {64, 4}}};
  const auto s = find_algorithm("recursive-doubling")->make({4, 1}).front();
  const auto time = [&](std::size_t n) { return finish_times(s, n, std::vector<double>(4, 0.0), m)[3]; };
  EXPECT_DOUBLE_EQ(time(4), (0.5 + 8) + (1 + 16)) << "one round on the node, one between the nodes";
  EXPECT_DOUBLE_EQ(time(16), (0.5 + 32) + (1 + 16)) << "long messages between nodes are faster";
}

TEST(Hockney, ALateRankDelaysTheOthers) {
  const core::Machine machine = linked(0, 1e9, 1e12);
  const auto ring = find_algorithm("ring")->make({4, 1}).front();
  std::vector<double> begin(4, 0.0);
  const double together = finish_times(ring, 4096, begin, machine)[0];
  begin[2] = 1.0;
  for (double end : finish_times(ring, 4096, begin, machine)) EXPECT_GE(end, 1.0 + together / 2);
}

/// An all-reduce on four ranks, in slices of messages of so many bytes.
double sliced(const char* algorithm, std::size_t n, std::size_t message_bytes, const core::Machine& machine) {
  const auto schedules = find_algorithm(algorithm)->make({4, 1});
  const Slices slices(SliceCut::run, n, 4, schedules.front()->blocks(), message_bytes, false);
  const auto end = hockney_finish_times(schedules, slices, 4, std::vector<double>(4, 0.0), machine);
  return *std::max_element(end.begin(), end.end());
}

TEST(Hockney, OneSliceTakesTheTimeOfTheWhole) {
  const core::Machine machine = linked(1e-5, 1e9, 1e10);
  for (const auto* algorithm : {"ring", "direct", "rabenseifner", "double-tree"}) {
    const auto s = find_algorithm(algorithm)->make({4, 1}).front();
    const auto end = finish_times(s, 1 << 14, std::vector<double>(4, 0.0), machine);
    EXPECT_EQ(sliced(algorithm, 1 << 14, std::size_t{1} << 30, machine), *std::max_element(end.begin(), end.end()));
  }
}

TEST(Hockney, SlicesHideLatencyAndSumsButNotTransfers) {
  const core::Machine machine = linked(1e-6, 1e9, 1e9);
  const std::size_t n = 1 << 20;
  const double transfers = 1.5 * 4.0 * double(n) / 1e9, sums = transfers / 2;
  EXPECT_NEAR(sliced("ring", n, std::size_t{1} << 30, machine), transfers + sums + 6e-6, 1e-9);
  EXPECT_LT(sliced("ring", n, n / 64, machine), transfers * 1.1);
  EXPECT_GT(sliced("ring", n, n / 64, machine), transfers);
}

TEST(Hockney, BothTreesOfADoubleTreeAreUsed) {
  const core::Machine machine = linked(1e-9, 1e9, 1e12);
  const std::size_t n = 1 << 20;
  const auto first_tree = find_algorithm("double-tree")->make({4, 1}).front();
  const Slices slices(SliceCut::run, n, 4, first_tree->blocks(), n / 16, false);
  const auto alone = hockney_finish_times(std::span(&first_tree, 1), slices, 4, std::vector<double>(4, 0.0), machine);
  EXPECT_LT(sliced("double-tree", n, n / 16, machine), *std::max_element(alone.begin(), alone.end()))
      << "leaves of one are nodes of the other";
}

// Within 15 %, as messages of both trees meet on the way out of a rank. With four lanes, which a slice holds while it
// goes up and down, it is 1.5 to 2.3 buffers more from p = 8 on.
TEST(Hockney, ADoubleTreeTakesTwoBuffersTimeWhateverItsDepth) {
  const core::Machine machine = linked(1e-5, 1e9, 1e12);
  const std::size_t n = 1 << 24, bytes = n * sizeof(float);
  const double transfer = static_cast<double>(bytes) / 1e9;
  for (std::uint32_t p : {4u, 5u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 14u, 16u, 23u, 32u}) {
    const auto trees = find_algorithm("double-tree")->make({p, 1});
    const auto message = message_bytes_for(trees, bytes, std::size_t{1} << 20);
    const Slices slices(SliceCut::run, n, sizeof(float), 1, message, false);
    const auto end = hockney_finish_times(trees, slices, sizeof(float), std::vector<double>(p, 0.0), machine);
    const double levels = std::bit_width(p - 1);
    EXPECT_LT(*std::max_element(end.begin(), end.end()), 4 * levels * 1e-5 + 1.15 * 2 * transfer) << p;
  }
}

}  // namespace
}  // namespace gradmeter::allreduce
