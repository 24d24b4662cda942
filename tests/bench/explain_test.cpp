#include "bench/explain.hpp"

#include <gtest/gtest.h>

namespace gradmeter::bench {
namespace {

TEST(Explain, AStepThatLostLittleIsBoundByCompute) {
  EXPECT_EQ(binding_limit({.lost = 0.004, .contention = 0.004}, 0.1, false), "compute");
}

TEST(Explain, TheLargestLossIsNamed) {
  EXPECT_EQ(binding_limit({.lost = 0.06, .contention = 0.05, .exposed = 0.01}, 0.1, false), "memory");
  EXPECT_EQ(binding_limit({.lost = 0.06, .contention = 0.05, .exposed = 0.01}, 0.1, true), "cores");
  EXPECT_EQ(binding_limit({.lost = 0.06, .contention = 0.01, .exposed = 0.05, .skew = 0.01}, 0.1, false), "wire");
  EXPECT_EQ(binding_limit({.lost = 0.06, .contention = 0.01, .exposed = 0.05, .skew = 0.04}, 0.1, false), "skew");
}

TEST(Explain, SkewIsNeverMoreThanWhatWasExposed) {
  // Waiting that the control's own spread explains is contention, not skew.
  EXPECT_EQ(binding_limit({.lost = 0.05, .contention = 0.05, .exposed = 0.0, .skew = 0.9}, 0.1, true), "cores");
}

}  // namespace
}  // namespace gradmeter::bench
