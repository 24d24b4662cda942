// SPDX-License-Identifier: Apache-2.0
// What every kernel case must pass: right on each shape, and not right once one element is made wrong.
#pragma once
#include <gtest/gtest.h>

#include "core/format.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::tests {

/// How many shapes are drawn at random for each kind of kernel case.
inline constexpr std::uint64_t random_shapes = test::sanitized ? 8 : 24;

inline void expect_right_and_error_found(const kernels::Problem& p, double flops_at_most = 1e9,
                                         runtime::Device& device = runtime::host_device()) {
  SCOPED_TRACE(fmt::format("{} {}", kernels::text(p.shape), kernels::name(p.precision)));
  const auto kernel_case = kernels::make_kernel_case(p, {.sets = 2, .seed = 3, .device = &device});
  kernel_case->run(1);
  const kernels::KernelCaseCheck check = kernel_case->check(flops_at_most, false);
  EXPECT_TRUE(check.right()) << "worst " << check.worst << " error " << check.error;
  const kernels::KernelCaseCheck wrong = kernel_case->check(flops_at_most, true);
  EXPECT_FALSE(wrong.right()) << "worst " << wrong.worst << " error " << wrong.error;
  EXPECT_TRUE(kernel_case->check(flops_at_most, false).right()) << "the damage stayed";
  EXPECT_FALSE(kernel_case->implementation().empty());
  // Of a set that was drawn anew.
  const kernels::CheckedCall call{.set = 1, .flops_at_most = flops_at_most, .seed = 7};
  kernel_case->redraw(call.set, 99);
  kernel_case->prepare_check(call);
  kernel_case->run(call.set);
  const kernels::KernelCaseCheck again = kernel_case->finish_check(call);
  EXPECT_TRUE(again.right()) << "worst " << again.worst << " error " << again.error;
  kernel_case->prepare_check(call);
  EXPECT_FALSE(kernel_case->finish_check(call).right()) << "no call, and the result of the one before counts";
}

}  // namespace gradmeter::tests
