// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/this_thread.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <thread>

namespace gradmeter::runtime {
namespace {

TEST(ShortTimeSlices, AreOfTheCallingThreadAndTakeNothingFromOthers) {
  const int slack = prctl(PR_GET_TIMERSLACK);
  const int nice = getpriority(PRIO_PROCESS, 0);
  std::thread([&] {
    request_short_time_slices();
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK), 1000);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
  }).join();
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK), slack);
}

TEST(ShortTimeSlices, MayBeAskedForAgain) {
  std::thread([] {
    request_short_time_slices();
    request_short_time_slices();
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  }).join();
}

}  // namespace
}  // namespace gradmeter::runtime
