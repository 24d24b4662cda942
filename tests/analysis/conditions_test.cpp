// SPDX-License-Identifier: Apache-2.0
#include "analysis/launches.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

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

TEST(Conditions, AValueThatOnlySomeLaunchesHaveIsNamedAsSuch) {
  Side a = timed_side("a", {{1.0}, {1.0}}), b = timed_side("b", {{1.0}});
  a.runs[0].info.environment["OMPI_MCA_btl"] = b.runs[0].info.environment["OMPI_MCA_btl"] = "tcp,self";
  b.runs[0].info.mpi_copy_mechanism = "cma";
  for (auto& run : a.runs) run.info.mpi_copy_mechanism = "none";
  EXPECT_THAT(differing_conditions(a, b),
              ::testing::ElementsAre("MPI's single copy: none to cma",
                                     "environment OMPI_MCA_btl: none and tcp,self to tcp,self"));
}

std::vector<std::size_t> origins_with(const std::function<void(core::RunInfo& first, core::RunInfo& second)>& change) {
  Side side = timed_side("a", {{1.0}, {1.0}});
  change(side.runs[0].info, side.runs[1].info);
  return origins_of(side.runs);
}

TEST(Conditions, LaunchesUnderOtherConditionsAreOfAnotherOrigin) {
  using ::testing::ElementsAre;
  EXPECT_THAT(origins_with([](auto&, auto&) {}), ElementsAre(0, 0));
  EXPECT_THAT(origins_with([](auto&, auto& b) { b.environment["OMPI_MCA_btl"] = "tcp,self"; }), ElementsAre(0, 1));
  EXPECT_THAT(origins_with([](auto&, auto& b) { b.environment["OMPI_MCA_btl"] = ""; }), ElementsAre(0, 1));
  EXPECT_THAT(origins_with([](auto& a, auto& b) { a.mpi_copy_mechanism = "cma", b.mpi_copy_mechanism = "none"; }),
              ElementsAre(0, 1));
  EXPECT_THAT(origins_with([](auto& a, auto& b) { a.binding = "0", b.binding = "0-1"; }), ElementsAre(0, 1));
  EXPECT_THAT(origins_with([](auto& a, auto& b) {
                a.environment["SLURM_JOB_ID"] = "1";
                b.environment["SLURM_JOB_ID"] = "2";
              }),
              ElementsAre(0, 0))
      << "every job has a number of its own";
}

// mpirun binds two ranks to cores and more to sockets: the points of both are a curve.
TEST(Conditions, ThoseThatDifferOnlyWithTheNumberOfRanksMakeNoOtherOrigin) {
  EXPECT_THAT(origins_with([](auto& a, auto& b) {
                a.ranks = 2, a.binding = "0";
                b.ranks = 4, b.binding = "0-1";
              }),
              ::testing::ElementsAre(0, 0));
}

TEST(Conditions, LaunchesUnderOtherConditionsAreNotMerged) {
  Side side = timed_side("a", {{1.0}, {2.0}, {3.0}});
  side.runs[1].info.environment["OMPI_MCA_btl"] = "tcp,self";
  const auto merged = merge_launches(side.runs);
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].launches, 2u);
  EXPECT_EQ(merged[1].launches, 1u);
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
