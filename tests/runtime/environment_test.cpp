// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace gradmeter::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(NamedEnvironment, TakesTheNamedVariablesAndNoOthers) {
  const std::array<const char*, 9> block{"HOME=/home/ann",
                                         "OMP_NUM_THREADS=4",
                                         "OMPI_MCA_btl=tcp,self",
                                         "OMPI_MCA_coll_tuned_use_dynamic_rules=1",
                                         "NCCL_ALGO=Ring=x",
                                         "SLURM_JOB_ID=7",
                                         "AWS_SECRET_ACCESS_KEY=abc",
                                         "malformed",
                                         nullptr};
  EXPECT_THAT(recorded_environment(block.data()),
              ElementsAre(Pair("NCCL_ALGO", "Ring=x"), Pair("OMPI_MCA_btl", "tcp,self"),
                          Pair("OMPI_MCA_coll_tuned_use_dynamic_rules", "1"), Pair("OMP_NUM_THREADS", "4"),
                          Pair("SLURM_JOB_ID", "7")));
}

TEST(NamedEnvironment, NothingThatLooksSecretPassesEvenWithAGoodPrefix) {
  for (const char* name : {"NCCL_AUTH_TOKEN", "NCCL_NET_KEY", "OMPI_MCA_btl_tcp_secret", "OMPI_MCA_opal_Password",
                           "OMPI_MCA_mpi_cookie", "NCCL_credential_file"}) {
    EXPECT_FALSE(is_recorded_variable(name)) << name;
  }
}

TEST(NamedEnvironment, WhatMpirunSetsForItselfIsLeftOut) {
  for (const char* name :
       {"OMPI_MCA_orte_precondition_transports", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_pmix",
        "OMPI_MCA_orte_jobfam_session_dir", "OMPI_MCA_initial_wdir", "PMIX_SERVER_URI4", "OMPI_COMMAND"}) {
    EXPECT_FALSE(is_recorded_variable(name)) << name;
  }
}

TEST(NamedEnvironment, NamesAreWhole) {
  EXPECT_TRUE(is_recorded_variable("OMP_NUM_THREADS"));
  EXPECT_FALSE(is_recorded_variable("OMP_NUM_THREADS_OLD"));
  EXPECT_FALSE(is_recorded_variable("omp_num_threads"));
  EXPECT_FALSE(is_recorded_variable(""));
}

TEST(NamedEnvironment, ReadsThisProcess) {
  ASSERT_EQ(::setenv("GOMP_SPINCOUNT", "123", 1), 0);
  EXPECT_EQ(recorded_environment().at("GOMP_SPINCOUNT"), "123");
  ASSERT_EQ(::unsetenv("GOMP_SPINCOUNT"), 0);
  EXPECT_FALSE(recorded_environment().contains("GOMP_SPINCOUNT"));
}

TEST(LibraryVersions, AreNumbered) {
  const auto versions = library_versions();
  for (const char* name : {"hwloc", "glibc", "compiler"}) {
    ASSERT_TRUE(versions.contains(name)) << name;
    EXPECT_NE(versions.at(name).find_first_of("0123456789"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace gradmeter::runtime
