// SPDX-License-Identifier: Apache-2.0
#include "analysis/launches.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "timed_launches.hpp"

namespace gradmeter::analysis {
namespace {

TEST(Conditions, AreNamedWhereTheyDiffer) {
  Side a = timed_side("a", {{1.0}}), b = timed_side("b", {{1.0}});
  EXPECT_TRUE(differing_conditions(a, b).empty());
  a.runs[0].info.mpi = "Open MPI 4.1.4";
  b.runs[0].info.mpi = "MPICH 4.0";
  b.runs[0].info.environment["OMP_NUM_THREADS"] = "2";
  EXPECT_THAT(differing_conditions(a, b),
              ::testing::ElementsAre("MPI: Open MPI 4.1.4 to MPICH 4.0", "environment OMP_NUM_THREADS: none to 2"));
}

TEST(Conditions, TwoBlocksOfLaunchesAreSeenAndLaunchesInTurnAreNot) {
  Side a = timed_side("a", {{1.0}, {1.0}}), b = timed_side("b", {{1.0}, {1.0}});
  EXPECT_FALSE(launched_in_two_blocks(a, b));
  for (auto& run : b.runs) run.info.time = "2026-02" + run.info.time.substr(7);
  EXPECT_TRUE(launched_in_two_blocks(a, b));
  EXPECT_TRUE(launched_in_two_blocks(b, a));
}

TEST(Conditions, NamesWithSeparatorsMakeNoOtherMachineOrBuild) {
  core::RunInfo one, two;
  one.hosts = {"a b"}, two.hosts = {"a", "b"};
  EXPECT_NE(machine_of(one), machine_of(two));
  one.hosts = two.hosts = {"a"};
  one.cpu = "x|y", two.cpu = "x", two.gpus = {"y"};
  EXPECT_NE(machine_of(one), machine_of(two));
  one = two = {};
  one.version = "1|2", one.commit = "3";
  two.version = "1", two.commit = "2|3";
  EXPECT_NE(origin_of(one), origin_of(two));
}

TEST(Conditions, AMachineKeepsItsNameWhenItsDriverChanges) {
  core::RunInfo before;
  before.hosts = {"n1", "n2"};
  before.cpu = "x";
  core::RunInfo after = before;
  after.libraries["CUDA driver"] = "13.1";
  EXPECT_EQ(machine_of(before), machine_of(after));
  after.hosts.pop_back();
  EXPECT_NE(machine_of(before), machine_of(after));
}

}  // namespace
}  // namespace gradmeter::analysis
