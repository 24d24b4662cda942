#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataparallel/strategies/sharded.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::farthest;
using test::run_workers;
using test::StrategyRun;

TEST(Sharded, IsSyncWithEveryRuleThatMayBeGivenParts) {
  for (const auto& o : optimizers()) {
    const auto rule = make_optimizer(o.name, {.elements = 4});
    if (rule->needs_whole_tensors()) continue;
    for (const int p : {1, 2, 3, 4, 8}) {
      StrategyRun run{.strategy = "sync", .optimizer = std::string(o.name), .steps = 4, .step_size = 0.01f};
      const auto sync = run_workers(p, run);
      run.strategy = "sharded";
      const auto sharded = run_workers(p, run);
      for (std::size_t r = 0; r < sync.size(); ++r) {
        EXPECT_EQ(farthest(sharded[r].weights, sync[r].weights), 0) << o.name << " p " << p << ": both use the ring";
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

/// A rule that must see whole tensors.
class Norms final : public Rule {
 public:
  Norms() : Rule("norms") {}
  bool needs_whole_tensors() const override { return true; }
  void apply(Buffer, ConstBuffer, std::size_t, UpdateStep) override {}
  model::Cost cost(std::size_t) const override { return {}; }
};

TEST(Sharded, RulesOfWholeTensorsAreRefusedWithTheReason) {
  const auto strategy = find_strategy("sharded")->make({});
  EXPECT_THAT(strategy->refusal(Norms(), 2), ::testing::HasSubstr("norms needs whole tensors"));
  EXPECT_EQ(strategy->refusal(Norms(), 1), "");
  EXPECT_EQ(strategy->refusal(*make_optimizer("sgd", {.elements = 1}), 2), "");
}

}  // namespace
}  // namespace gradmeter::dataparallel
