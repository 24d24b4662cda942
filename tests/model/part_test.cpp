// SPDX-License-Identifier: Apache-2.0
#include "model/network/part.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"

namespace gradmeter::model {
namespace {

using Kind = PipelineStep::Kind;

std::vector<PipelineStep> only(const std::vector<PipelineStep>& steps, Kind kind) {
  std::vector<PipelineStep> out;
  std::ranges::copy_if(steps, std::back_inserter(out), [&](const PipelineStep& s) { return s.kind == kind; });
  return out;
}

TEST(PipelineSteps, EachMicroBatchGoesForwardAndBackwardOnceInOrder) {
  for (const auto order : {PipelineOrder::one_f_one_b, PipelineOrder::gpipe}) {
    for (const std::size_t stages : {1u, 2u, 4u}) {
      for (const std::size_t m : {1u, 2u, 3u, 8u}) {
        for (std::size_t stage = 0; stage < stages; ++stage) {
          const auto steps = pipeline_steps(order, stage, stages, m);
          ASSERT_EQ(steps.size(), 2 * m);
          for (const Kind kind : {Kind::forward, Kind::backward}) {
            const auto some = only(steps, kind);
            ASSERT_EQ(some.size(), m);
            for (std::size_t i = 0; i < m; ++i) EXPECT_EQ(some[i].micro_batch, i);
          }
        }
      }
    }
  }
}

/// Runs all stages at once, each as far as what it needs is there; true when all end.
bool ends(std::vector<std::vector<PipelineStep>> steps) {
  const std::size_t stages = steps.size();
  std::vector<std::size_t> forward(stages, 0), backward(stages, 0), at(stages, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < stages; ++s) {
      if (at[s] == steps[s].size()) continue;
      const PipelineStep& step = steps[s][at[s]];
      const bool is_forward = step.kind == Kind::forward;
      const bool can = is_forward
                           ? s == 0 || forward[s - 1] > step.micro_batch
                           : forward[s] > step.micro_batch && (s + 1 == stages || backward[s + 1] > step.micro_batch);
      if (!can) continue;
      ++(is_forward ? forward : backward)[s];
      ++at[s];
      moved = true;
    }
  }
  for (std::size_t s = 0; s < stages; ++s)
    if (at[s] != steps[s].size()) return false;
  return true;
}

TEST(PipelineSteps, NoStageWaitsForEver) {
  for (const auto order : {PipelineOrder::one_f_one_b, PipelineOrder::gpipe}) {
    for (const std::size_t m : {1u, 3u, 8u}) {
      std::vector<std::vector<PipelineStep>> all;
      for (std::size_t s = 0; s < 4; ++s) all.push_back(pipeline_steps(order, s, 4, m));
      EXPECT_TRUE(ends(all));
      std::swap(all.back().front(), all.back().back());
      EXPECT_FALSE(ends(all)) << "a backward pass before its forward one must show";
    }
  }
}

TEST(PipelineSteps, OneForwardOneBackwardHoldsAtMostAsManyAsThereAreStages) {
  for (const std::size_t m : {1u, 2u, 4u, 16u}) {
    for (std::size_t stage = 0; stage < 4; ++stage) {
      EXPECT_EQ(most_in_flight(pipeline_steps(PipelineOrder::one_f_one_b, stage, 4, m)), std::min(4 - stage, m));
      EXPECT_EQ(most_in_flight(pipeline_steps(PipelineOrder::gpipe, stage, 4, m)), m);
    }
  }
}

TEST(PipelineOrder, NamesAreReadBack) {
  for (const auto order : {PipelineOrder::one_f_one_b, PipelineOrder::gpipe})
    EXPECT_EQ(find_pipeline_order(name(order)), order);
  EXPECT_THROW((void)find_pipeline_order("2f2b"), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::model
