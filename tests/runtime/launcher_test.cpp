// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/environment.hpp"

#include <gtest/gtest.h>

#include <map>

namespace gradmeter::runtime {
namespace {

Launcher launched_with(const std::map<std::string, std::string>& variables) {
  return read_launcher([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect(const Launcher& launcher, const std::string& name, int rank, int size) {
  EXPECT_EQ(launcher.name, name);
  EXPECT_EQ(launcher.rank, rank);
  EXPECT_EQ(launcher.size, size);
}

TEST(Launcher, NothingButAShell) { expect(launched_with({{"PATH", "/bin"}}), "", 0, 1); }

TEST(Launcher, OpenMpi) {
  expect(launched_with({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"PMIX_RANK", "3"}}),
         "mpirun (Open MPI)", 3, 8);
}

TEST(Launcher, OpenMpiInsideASlurmJobIsNotTheStepOfItsDaemons) {
  expect(launched_with({{"OMPI_COMM_WORLD_RANK", "3"},
                        {"OMPI_COMM_WORLD_SIZE", "8"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_PROCID", "1"},
                        {"SLURM_STEP_NUM_TASKS", "2"}}),
         "mpirun (Open MPI)", 3, 8);
}

TEST(Launcher, MpichAndIntel) {
  expect(launched_with({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}), "mpiexec (MPICH)", 1, 4);
  expect(launched_with({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"I_MPI_HYDRA_UUID", "6c0a"}}), "mpiexec (Intel MPI)", 1,
         4);
}

TEST(Launcher, ASlurmStepWithEachOfItsPlugins) {
  std::map<std::string, std::string> step{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  expect(launched_with(step), "srun", 2, 4);
  step.insert({{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}});
  expect(launched_with(step), "srun", 2, 4);
  step.insert({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"SLURM_MPI_TYPE", "pmi2"}});
  expect(launched_with(step), "srun", 2, 4);
  expect(launched_with({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}}), "srun", 2, 4);
}

TEST(Launcher, ABatchScriptIsNoStep) {
  expect(launched_with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "7"}}), "", 0, 1);
  // 4294967291 is the batch step, 4294967290 an interactive one.
  for (const char* step : {"4294967291", "4294967290", "batch", ""}) {
    expect(launched_with({{"SLURM_STEP_ID", step}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}), "", 0, 1);
  }
}

TEST(Launcher, PmixAloneNamesNoSize) { expect(launched_with({{"PMIX_RANK", "5"}}), "PMIx", 5, 6); }

TEST(Launcher, NonsenseIsNoLauncher) {
  expect(launched_with({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "", 0, 1);
  expect(launched_with({{"OMPI_COMM_WORLD_RANK", "-1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "", 0, 1);
  expect(launched_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "99999999999"}}), "", 0, 1);
}

TEST(SeparateWorlds, AreNamedWithWhatToDo) {
  const auto mpirun = separate_worlds_advice({"mpirun (Open MPI)", 0, 4}, 1);
  ASSERT_TRUE(mpirun);
  EXPECT_NE(mpirun->find("mpirun (Open MPI) started 4 separate one-rank worlds"), std::string::npos) << *mpirun;
  EXPECT_NE(mpirun->find("own mpirun"), std::string::npos) << *mpirun;
  EXPECT_EQ(mpirun->find('\n'), std::string::npos);
  const auto srun = separate_worlds_advice({"srun", 1, 4}, 1);
  ASSERT_TRUE(srun);
  EXPECT_NE(srun->find("--mpi=pmix"), std::string::npos) << *srun;
  const auto pmix = separate_worlds_advice({"PMIx", 3, 4}, 1);
  ASSERT_TRUE(pmix);
  EXPECT_NE(pmix->find("at least 4"), std::string::npos) << *pmix;
}

TEST(SeparateWorlds, AreNotSeenWhereAllIsWell) {
  EXPECT_FALSE(separate_worlds_advice({"mpirun (Open MPI)", 0, 4}, 4));
  EXPECT_FALSE(separate_worlds_advice({"mpirun (Open MPI)", 0, 1}, 1));
  EXPECT_FALSE(separate_worlds_advice({}, 1));
  EXPECT_FALSE(separate_worlds_advice({}, 4)) << "an unknown launcher that works is welcome";
}

}  // namespace
}  // namespace gradmeter::runtime
