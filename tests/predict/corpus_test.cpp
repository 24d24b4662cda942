// SPDX-License-Identifier: Apache-2.0
// Public measurements (data/predict): each row is predicted from rows of other groups only.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/format.hpp"
#include "core/statistics.hpp"
#include "predict/layer_step.hpp"
#include "predict/score.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::predict {
namespace {

std::vector<TrainingStep> corpus(const std::string& name) {
  const std::string path = std::string(GRADMETER_PREDICT_DATA "/") + name + ".csv";
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return read_measured_steps(std::string(std::istreambuf_iterator<char>(in), {}), path);
}

struct Bar {
  const char* name;
  double mape;        ///< [percent]
  double sheet_mape;  ///< with data sheets alone
  std::string (*group)(const TrainingStep&);
};
const Bar bars[]{{"vtrain_single", 7.5, 22,
                  [](const TrainingStep& s) { return fmt::format("{} {} {}", s.hidden, s.tensor, s.micro_batch); }},
                 {"llm_foundry", 4.5, 22, [](const TrainingStep& s) { return s.model + s.system; }},
                 {"internevo", 6.5, 22, group_of},
                 {"simumax_b200", 6.5, 22, group_of}};

/// Figures are no business of a sanitizer, under which they take minutes.
class Corpora : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::sanitized) GTEST_SKIP() << "fits of whole tables take minutes under a sanitizer";
  }
};

TEST_F(Corpora, RowsOfOtherGroupsPredictWithinTheBars) {
  double covered = 0, rows = 0, widths = 0;
  for (const Bar& bar : bars) {
    const auto steps = corpus(bar.name);
    const Score s = score_leaving_out(steps, bar.name, bar.group);
    ASSERT_TRUE(s.mape) << bar.name;
    EXPECT_LE(*s.mape, bar.mape) << bar.name;
    EXPECT_LE(*s.mape_all, bar.mape) << bar.name << ": experts apart, all rows are predicted";
    EXPECT_LT(*s.mape, s.constant_flops_mape.value_or(100)) << bar.name << " beats the naive prediction";
    EXPECT_LT(s.mape_where_linear.value_or(0), s.linear_mape.value_or(100)) << bar.name << " beats linear scaling";
    const auto n = static_cast<double>(s.rows - s.unpredicted);
    EXPECT_GE(*s.coverage, n >= 30 ? 80 : 0) << bar.name;
    rows += n, covered += n * *s.coverage, widths += n * *s.half_width;
    const Score sheets = score(Calibration({}), steps, bar.name);
    EXPECT_LE(*sheets.mape, bar.sheet_mape) << bar.name << " by data sheets alone";
  }
  EXPECT_GE(covered / rows, 85) << "of 90 % intervals, over all corpora";
  EXPECT_LE(covered / rows, 97);
  EXPECT_LE(widths / rows, 20);
}

// Sixteen of its rows differ from a calibration row in the mesh alone, and linear scaling is 2.5 % off for these.
TEST_F(Corpora, RowsOfAnotherMeshPredictBetterThanLinearScaling) {
  const Score s = score_leaving_out(corpus("bigscience"), "bigscience", group_of);
  EXPECT_EQ(s.linear_rows, 16u);
  EXPECT_LT(s.mape_where_linear.value_or(100), s.linear_mape.value_or(0));
  EXPECT_LT(*s.mape, 5);
}

TEST_F(Corpora, AWrongMeshIsSeenInTheScore) {
  const auto all = corpus("vtrain_single");
  std::vector<TrainingStep> steps;  // a sixth of the rows: fits of all take a minute
  for (std::size_t i = 0; i < all.size(); i += 6) steps.push_back(all[i]);
  const double right = *score_leaving_out(steps, "", bars[0].group).mape;
  for (TrainingStep& s : steps) std::swap(s.tensor, s.pipeline);
  EXPECT_GT(*score_leaving_out(steps, "", bars[0].group).mape, 1.5 * right);
}

TEST_F(Corpora, RowsThatCannotBePredictedAreCountedWithTheirReason) {
  auto steps = corpus("tf_benchmarks");
  for (TrainingStep& s : steps) s.model = "none of ours";
  const Score s = score(Calibration({}), steps, "tf");
  EXPECT_EQ(s.unpredicted, s.rows);
  EXPECT_DOUBLE_EQ(s.mape_all.value_or(0), 100);
  EXPECT_FALSE(s.mape);
  std::size_t counted = 0;
  for (const auto& [why, n] : s.reasons) counted += n;
  EXPECT_EQ(counted, s.rows);
  const Score with_experts = score(Calibration({}), corpus("simumax_b200"), "b200");
  EXPECT_EQ(with_experts.reasons.at("experts"), 6u);
  EXPECT_EQ(with_experts.mape, with_experts.mape_all) << "rows with experts are left out";
}

TEST_F(Corpora, OneGpuStepsFromLayersLieInTheirIntervals) {
  std::vector<double> away;
  for (const char* name : {"tf_benchmarks", "pytorch_ddp", "dlperf", "deeplearningexamples"}) {
    for (const TrainingStep& s : corpus(name)) {
      if (s.gpus != 1 || !(s.step_s > 0) || (!s.quantile.empty() && s.quantile != "p50")) continue;
      const auto p = Calibration({}).predict(s).prediction;
      if (!p || p->basis != Basis::layer_costs) continue;
      away.push_back(std::abs(std::log(p->seconds / s.step_s)));
    }
  }
  ASSERT_GT(away.size(), 50u);
  std::ranges::sort(away);
  const double ninety = core::quantile(away, 0.9);
  RecordProperty("rows", static_cast<int>(away.size()));
  RecordProperty("ninety", std::to_string(ninety));
  EXPECT_NEAR(ninety, layer_step_spread, 0.1) << "the interval is what these rows say";
}

TEST(Tables, AreAllRead) {
  for (const char* name : {"bigscience", "deeplearningexamples", "dlperf", "dlperf_gpt", "internevo", "llm_foundry",
                           "megatron_bridge", "pytorch_ddp", "simumax_b200", "tf_benchmarks", "vtrain_single"})
    EXPECT_GT(corpus(name).size(), 10u) << name;
}

}  // namespace
}  // namespace gradmeter::predict
