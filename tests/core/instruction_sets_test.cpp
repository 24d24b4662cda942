// SPDX-License-Identifier: Apache-2.0
#include "core/instruction_sets.hpp"

#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace gradmeter::core {
namespace {

TEST(InstructionSets, NoneAboveALimitIsUsed) {
  const std::int64_t all = hwy::SupportedTargets();
  for (const auto& [limit, best] : {std::pair{"AVX2", HWY_AVX2}, {"AVX2_VNNI", HWY_AVX2}, {"SSE41", HWY_SSE4}}) {
    limit_instruction_sets(limit);
    EXPECT_EQ(hwy::SupportedTargets(), all & -best) << limit;
    hwy::DisableTargets(0);
  }
}

TEST(InstructionSets, AnotherTextIsNoLimit) {
  const std::int64_t all = hwy::SupportedTargets();
  for (const char* limit : {"", "ALL", "AVX512_CORE", "avx"}) {
    limit_instruction_sets(limit);
    EXPECT_EQ(hwy::SupportedTargets(), all) << limit;
  }
}

}  // namespace
}  // namespace gradmeter::core
