// SPDX-License-Identifier: Apache-2.0
// The norms of the ranks' gradients and of their mean, on real ranks, over several chunks.
#include "bench/train/metrics.hpp"

#include <gtest/gtest.h>

#include "core/random.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::bench {
namespace {

std::vector<float> gradient(int rank, std::size_t n) {
  const core::Random random(5, static_cast<std::uint64_t>(rank));
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = 0.5f + static_cast<float>(random.uniform(i));
  return out;
}

TEST(GradientNormsCheck, AreThoseOfTheRanksAndOfTheirMean) {
  const auto world = runtime::MpiSession::world();
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{200001}}) {
    std::vector<double> mean(n);
    double part = 0, whole = 0;
    for (int r = 0; r < world.size(); ++r) {
      const auto g = gradient(r, n);
      for (std::size_t i = 0; i < n; ++i) {
        mean[i] += double{g[i]} / world.size();
        part += double{g[i]} * double{g[i]} / world.size();
      }
    }
    for (const double x : mean) whole += x * x;
    const GradientNorms found = gradient_norms(world, gradient(world.rank(), n));
    EXPECT_NEAR(found.part_square, part, 1e-9 * part);
    EXPECT_NEAR(found.mean_square, whole, 1e-9 * whole);
    if (world.size() > 1 && n > 0) {
      EXPECT_LT(found.mean_square, found.part_square) << "ranks differ";
    }
  }
}

}  // namespace
}  // namespace gradmeter::bench
