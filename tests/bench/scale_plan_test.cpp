#include "bench/scale_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace gradmeter::bench {
namespace {

ScaleFactors factors() {
  return {.models = {"mlp:784-1024-1024-10"},
          .batches = {16, 64, 256},
          .ranks = {1, 2, 4},
          .strategies = {dataparallel::find_strategy("independent"), dataparallel::find_strategy("sync")},
          .algorithms = {allreduce::find_algorithm("mpi"), allreduce::find_algorithm("ring")},
          .overlaps = {Overlap::bucketed},
          .buckets = {std::size_t{25} << 20},
          .transports = {dataparallel::TransportKind::automatic},
          .scalings = {Scaling::weak},
          .threads = {1},
          .cadences = {runtime::Cadence::barrier},
          .interconnect = ""};
}

auto count_if(const std::vector<ScalePoint>& points, auto predicate) {
  return std::count_if(points.begin(), points.end(), predicate);
}

TEST(ScalePlan, MeaningfulCombinationsStandOnce) {
  const auto points = plan_scale(factors());
  EXPECT_EQ(points.size(), 24u);
  EXPECT_EQ(count_if(points, [](const auto& p) { return !p.strategy->communicates(); }), 9);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.strategy->communicates() && p.ranks == 1; }), 3);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.algorithm != nullptr; }), 12);
}

TEST(ScalePlan, ControlsAreAddedWhereTheyWereNotAskedFor) {
  auto f = factors();
  f.ranks = {4};
  f.strategies = {dataparallel::find_strategy("sync")};
  const auto points = plan_scale(f);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.ranks == 1; }), 6);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.ranks == 4 && !p.strategy->communicates(); }), 3);
}

TEST(ScalePlan, BaselineAndControlComeBeforeWhatIsComparedWithThem) {
  auto f = factors();
  f.scalings = {Scaling::weak, Scaling::strong};
  const auto points = plan_scale(f);
  const auto same = [](const ScalePoint& a, const ScalePoint& b) {
    return a.model == b.model && a.ranks == b.ranks && a.batch_per_rank == b.batch_per_rank &&
           a.strategy->name == b.strategy->name && a.algorithm == b.algorithm && a.scaling == b.scaling;
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (const auto& wanted : {baseline_of(points[i]), control_of(points[i])}) {
      const auto end = points.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      EXPECT_TRUE(std::any_of(points.begin(), end, [&](const auto& p) { return same(p, wanted); })) << i;
    }
  }
}

TEST(ScalePlan, WeakKeepsTheBatchOfARankAndStrongThatOfAll) {
  auto f = factors();
  f.scalings = {Scaling::weak, Scaling::strong};
  for (const auto& p : plan_scale(f)) {
    if (!p.impossible.empty()) continue;
    EXPECT_EQ(p.batch_global, p.batch_per_rank * static_cast<std::size_t>(p.ranks));
    if (p.scaling == Scaling::strong) {
      EXPECT_TRUE(p.batch_global == 16 || p.batch_global == 64 || p.batch_global == 256);
    }
  }
}

TEST(ScalePlan, ABatchThatDoesNotDivideIsARowWithItsReason) {
  auto f = factors();
  f.ranks = {3};
  f.scalings = {Scaling::strong};
  const auto points = plan_scale(f);
  EXPECT_EQ(count_if(points, [](const auto& p) { return !p.impossible.empty(); }), 9);
}

TEST(ScalePlan, TheVendorsExchangeHasNoTransportOfOurs) {
  auto f = factors();
  f.transports = {dataparallel::TransportKind::mpi, dataparallel::TransportKind::shm};
  std::set<std::string_view> vendors;
  const auto points = plan_scale(f);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.algorithm && p.algorithm->is_vendor(); }), 6);
  EXPECT_EQ(count_if(points, [](const auto& p) { return p.algorithm && !p.algorithm->is_vendor(); }), 12);
}

}  // namespace
}  // namespace gradmeter::bench
