// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/optimizers/layerwise.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "dataparallel/fabric/decorators/probe.hpp"
#include "dataparallel/fabric/simulation/world.hpp"

namespace gradmeter::dataparallel {
namespace {

/// Values whose low words are of every kind, those of floats that are no numbers among them.
double value(int rank, std::size_t i) {
  if (i == 0) return 1e200 * (rank + 1);
  if (i == 1) return rank == 0 ? std::nextafter(1.0, 2.0) : 0.0;
  return std::sqrt(double(i) + 0.37 * rank) * std::pow(10.0, double(i) - 6.0);
}

std::vector<std::vector<double>> summed(int ranks, std::size_t n, Totals* totals = nullptr) {
  std::vector<std::vector<double>> out(static_cast<std::size_t>(ranks));
  SimWorld(ranks, {}).run([&](Fabric& f) {
    Probe probe(f);
    GroupSums sums(probe, everybody, n);
    auto& mine = out[static_cast<std::size_t>(f.rank(everybody))];
    probe.begin_step();
    for (std::size_t i = 0; i < n; ++i) mine.push_back(value(f.rank(everybody), i));
    sums.sum(mine);
    (void)probe.end_step();
    if (totals && f.rank(everybody) == 0) *totals = probe.totals();
  });
  return out;
}

TEST(GroupSums, AreThoseInRankOrderInFloat64OnEveryRank) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    std::vector<double> expected(12, 0.0);
    std::vector<float> in_fp32(12, 0.0f);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (int r = 0; r < ranks; ++r) {
        expected[i] += value(r, i);
        if (i > 0) in_fp32[i] += static_cast<float>(value(r, i));
      }
    }
    for (const auto& got : summed(ranks, expected.size())) EXPECT_EQ(got, expected) << ranks;
    EXPECT_NE(double{in_fp32[1]}, expected[1]) << "control: fp32 has no room for these digits";
  }
}

TEST(GroupSums, LosesNoBitOfWhatPassesThrough) {
  // The low word of this double is the bits of a signalling NaN.
  const double odd = std::bit_cast<double>(std::uint64_t{0x3ff000007fa00001});
  std::vector<double> got;
  SimWorld(3, {}).run([&](Fabric& f) {
    GroupSums sums(f, everybody, 1);
    std::vector<double> v{f.rank(everybody) == 1 ? odd : 0.0};
    sums.sum(v);
    if (f.rank(everybody) == 2) got = v;
  });
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(got[0]), std::bit_cast<std::uint64_t>(odd));
}

TEST(GroupSums, SendWhatIsForecast) {
  for (const int ranks : {2, 3, 8}) {
    Totals totals;
    (void)summed(ranks, 6, &totals);
    const Forecast f = GroupSums::predict({.ranks = static_cast<std::uint32_t>(ranks)}, 6);
    EXPECT_EQ(totals.bytes_sent * static_cast<std::uint64_t>(ranks), f.bytes);
    EXPECT_EQ(f.bytes, static_cast<std::uint64_t>(ranks * (ranks - 1)) * 6 * sizeof(double)) << "the closed form";
  }
}

TEST(GroupSums, MoreThanThereIsMemoryForIsRefused) {
  SimWorld(1, {}).run([](Fabric& f) {
    GroupSums sums(f, everybody, 2);
    std::vector<double> v(3, 1.0);
    EXPECT_THROW(sums.sum(v), std::logic_error);
  });
}

}  // namespace
}  // namespace gradmeter::dataparallel
