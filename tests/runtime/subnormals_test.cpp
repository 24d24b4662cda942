// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/this_thread.hpp"

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>
#include <thread>

namespace gradmeter::runtime {
namespace {

/// Other tests compute as the language says.
class Subnormals : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(std::fegetenv(&before_), 0); }
  void TearDown() override { EXPECT_EQ(std::fesetenv(&before_), 0); }

 private:
  std::fenv_t before_ = {};
};

// volatile: computed here and now, not by the compiler.
float product_below_normal() {
  volatile float least = std::numeric_limits<float>::min(), tenth = 0.1F;
  return least * tenth;
}
float subnormal_times_much() {
  volatile float least = std::numeric_limits<float>::denorm_min(), much = 1e30F;
  return least * much;
}
float least_normal() {
  volatile float twice = 2 * std::numeric_limits<float>::min(), half = 0.5F;
  return twice * half;
}

TEST_F(Subnormals, AreZerosAsResultsAndAsOperandsHereAndInThreadsThatStartLater) {
#if !defined(__x86_64__) && !defined(__aarch64__)
  GTEST_SKIP() << "this processor's mode is not known to us";
#endif
  ASSERT_GT(product_below_normal(), 0) << "the control: without the mode they are numbers";
  ASSERT_GT(subnormal_times_much(), 0);
  flush_subnormals();
  EXPECT_EQ(product_below_normal(), 0);
  EXPECT_EQ(subnormal_times_much(), 0);
  EXPECT_EQ(least_normal(), std::numeric_limits<float>::min()) << "no more than those";
  float product = 1, scaled = 1;
  std::thread([&] { product = product_below_normal(), scaled = subnormal_times_much(); }).join();
  EXPECT_EQ(product, 0);
  EXPECT_EQ(scaled, 0);
}

}  // namespace
}  // namespace gradmeter::runtime
