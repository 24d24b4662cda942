// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

namespace gradmeter::core {
namespace {

TEST(Error, ABackendErrorSaysLibraryCallReasonAndPlace) {
  const BackendError error("MPI", "MPI_Send", "no route");
  EXPECT_EQ(error.library(), "MPI");
  EXPECT_THAT(error.what(), testing::MatchesRegex("MPI: MPI_Send failed: no route \\(error_test.cpp:[0-9]+\\)"));
}

/// In a program of its own: what was noted stays.
TEST(Error, AFailedReleaseIsToldOnce) {
  const auto run = [] {
    if (has_failed_release()) std::exit(1);
    note_failed_release("CUDA", "cudaFree", "illegal address");
    note_failed_release("CUDA", "cudaEventDestroy", "illegal address");
    std::exit(has_failed_release() ? 3 : 0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(3),
              "^gradmeter: CUDA: cudaFree failed in the end: illegal address; an earlier operation [^\n]*\n$");
}

TEST(Error, WhileAnExceptionIsOnItsWayAReleaseSaysNothing) {
  struct Owner {
    ~Owner() { note_failed_release("CUDA", "cudaFree", "illegal address"); }
  };
  const auto run = [] {
    try {
      const Owner owner;
      throw Interrupted(2);
    } catch (const Interrupted&) {
      std::exit(has_failed_release() ? 3 : 0);
    }
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "^$");
}

TEST(Error, AnInterruptedRunExitsAsShellsReportIt) {
  EXPECT_EQ(interrupted_exit_code(Interrupted(2).signal()), 130);
  EXPECT_EQ(interrupted_exit_code(Interrupted(15).signal()), 143);
}

}  // namespace
}  // namespace gradmeter::core
