// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataparallel/strategy.hpp"
#include "support/sanitized.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::farthest;
using test::run_workers;
using test::StrategyRun;

/// Norms are summed block by block in float64, in another order than sync sums them.
constexpr double norms_apart = 1e-6;

TEST(Sharded, IsSyncWithEveryRule) {
  for (const auto& o : optimizers()) {
    const bool norms = make_optimizer(o.name, {.elements = 4})->needs_whole_tensors();
    for (const int p : {1, 2, 3, 4, 8}) {
      if (test::sanitized && p > 3) continue;
      StrategyRun run{.strategy = "sync", .optimizer = std::string(o.name), .steps = 4, .step_size = 0.01f};
      if (o.name == "lars") run.step_size = 3;
      const auto sync = run_workers(p, run);
      run.strategy = "sharded";
      const auto sharded = run_workers(p, run);
      for (std::size_t r = 0; r < sync.size(); ++r) {
        EXPECT_LE(farthest(sharded[r].weights, sync[r].weights), norms ? norms_apart : 0)
            << o.name << " p " << p << ": both use the ring";
      }
      run.optimizer = o.name == "sgd" ? "momentum" : "sgd";
      EXPECT_GT(farthest(run_workers(p, run)[0].weights, sync[0].weights), 1e-4) << "another rule is another run";
    }
  }
}

TEST(Sharded, TheBucketSizeChangesNothingBeyondRounding) {
  const auto whole = run_workers(4, {.strategy = "sharded", .bucket_bytes = 0});
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{25} << 20}) {
    const auto cut = run_workers(4, {.strategy = "sharded", .bucket_bytes = bytes});
    EXPECT_LT(farthest(cut[3].weights, whole[0].weights), 1e-5) << bytes;
  }
}

TEST(Sharded, SendsTheNormsThatItForecasts) {
  for (const int p : {2, 3, 8}) {
    for (const char* rule : {"lars", "lamb", "adam"}) {
      const StrategyRun run{.strategy = "sharded", .optimizer = rule, .steps = 3};
      std::uint64_t bytes = 0;
      for (const auto& e : run_workers(p, run)) bytes += e.totals.bytes_sent;
      const auto model = run.model();
      const ForecastInput forecast_input{.ranks = static_cast<std::uint32_t>(p),
                                         .tensors = model->tensors(),
                                         .elements = model->element_count(),
                                         .steps = 3};
      const auto forecast = [&](const char* of) {
        return find_strategy("sharded")
            ->make({.bucket_bytes = run.bucket_bytes, .optimizer = of})
            ->predict(forecast_input)
            .bytes;
      };
      EXPECT_EQ(bytes, forecast(rule)) << rule << " p " << p;
      EXPECT_EQ(bytes == forecast("sgd"), rule == std::string("adam")) << rule << " p " << p;
    }
  }
}

TEST(Sharded, AnswersForTheNormsMemory) {
  const model::Mlp mlp({784, 16, 10});
  const auto bytes = [&](const char* rule, int p) {
    return find_strategy("sharded")->make({.optimizer = rule})->fabric_bytes(mlp, p);
  };
  EXPECT_GE(bytes("lars", 8), std::size_t{8} * 4 * 2 * sizeof(double));  // of 4 tensors from 8 ranks two norms each
  EXPECT_EQ(bytes("lars", 1), 0u);
  EXPECT_EQ(bytes("adam", 8), 0u);
}

TEST(Sharded, AnswersForTheLongestShare) {
  const model::Mlp mlp({10, 9, 10});  // 199 elements: of three blocks the first is not the longest
  for (const int p : {2, 3, 4}) {
    const auto ranks = static_cast<std::uint32_t>(p);
    std::size_t longest = 0;
    for (std::uint32_t r = 0; r < ranks; ++r)
      longest = std::max(longest, allreduce::block_range(mlp.element_count(), ranks, r).count);
    const auto strategy = find_strategy("sharded")->make({.bucket_bytes = 0, .optimizer = "adam"});
    EXPECT_EQ(strategy->bytes_besides_fabric(mlp, p), optimizer_bytes("adam", longest)) << p;
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
