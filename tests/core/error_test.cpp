#include "core/error.hpp"

#include <gmock/gmock.h>

namespace gradmeter::core {
namespace {

TEST(Error, ABackendErrorSaysLibraryCallReasonAndPlace) {
  const BackendError error("MPI", "MPI_Send", "no route");
  EXPECT_EQ(error.library(), "MPI");
  EXPECT_THAT(error.what(), testing::MatchesRegex("MPI: MPI_Send failed: no route \\(error_test.cpp:[0-9]+\\)"));
}

TEST(Error, AnInterruptedRunExitsAsShellsReportIt) {
  EXPECT_EQ(interrupted_exit_code(Interrupted(2).signal()), 130);
  EXPECT_EQ(interrupted_exit_code(Interrupted(15).signal()), 143);
}

}  // namespace
}  // namespace gradmeter::core
