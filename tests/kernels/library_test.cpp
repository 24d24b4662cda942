// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/library.hpp"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdlib>

namespace gradmeter::kernels {
namespace {

/// In a process of its own, since oneDNN reads the variable once.
void expect_no_better_target(const char* limit, std::int64_t target) {
  if (const std::string why = onednn_refusal(); !why.empty()) GTEST_SKIP() << why;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ASSERT_EQ(::setenv("ONEDNN_MAX_CPU_ISA", limit, 1), 0);
  EXPECT_EXIT(
      {
        limit_loops_to_onednn_isa();
        std::exit((hwy::SupportedTargets() & (target - 1)) == 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "")
      << limit;
  ::unsetenv("ONEDNN_MAX_CPU_ISA");
}

TEST(LimitLoopsAsLibrary, NoSetIsUsedThatOneDnnMayNotUse) {
  expect_no_better_target("AVX2", HWY_AVX2);
  expect_no_better_target("avx2", HWY_AVX2);
  expect_no_better_target("SSE41", HWY_SSE4);
}

TEST(LimitLoopsAsLibrary, WithoutALimitAllAreUsed) {
  const std::int64_t all = hwy::SupportedTargets();
  limit_loops_to_onednn_isa();
  EXPECT_EQ(hwy::SupportedTargets(), all);
}

}  // namespace
}  // namespace gradmeter::kernels
