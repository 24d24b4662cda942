// SPDX-License-Identifier: Apache-2.0
// The exit code of a command that measures, from its rows.
#include "bench/engine/measuring.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.hpp"

namespace gradmeter::bench {
namespace {

using core::ExitCode;
using core::Status;

struct Ended {
  int code = 0;
  std::string said;  ///< on standard error
};

Ended end_of(const std::vector<Status>& rows, std::size_t wrong = 0, ExitCode end = ExitCode::done) {
  std::vector<core::Point> points;
  for (const Status status : rows) {
    auto& point = points.emplace_back();
    point.status = status;
    point.reason = "a call failed";
  }
  const report::CsvColumns csv;
  MeasuringCommand command{.experiment = {}, .printers = {.tables = {}, .csv = csv}, .measure = {}};
  command.end = [end](auto) { return end; };
  testing::internal::CaptureStderr();
  const int code = exit_code(command, points, wrong);
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(ExitCode, RowsThatFailedAreNoSuccess) {
  const auto all = end_of({Status::failed, Status::failed});
  EXPECT_EQ(all.code, 3);
  EXPECT_EQ(all.said, "gradmeter: 2 of 2 points failed and have no result, the first because: a call failed\n");
  const auto one = end_of({Status::ok, Status::failed, Status::unsupported});
  EXPECT_EQ(one.code, 3);
  EXPECT_EQ(one.said, "gradmeter: 1 of 3 points failed and has no result, the first because: a call failed\n");
}

TEST(ExitCode, RowsThatTheMachineOrTheTimeDoesNotAllowAreNoFailure) {
  const auto ended = end_of({Status::ok, Status::unsupported, Status::skipped, Status::mistrusted});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.said, "");
}

TEST(ExitCode, AWrongRowOutranksAFailedOneAndThatOutranksABar) {
  EXPECT_EQ(end_of({Status::failed, Status::wrong}, 1).code, 4);
  EXPECT_EQ(end_of({Status::failed, Status::ok}, 0, ExitCode::missed_target).code, 3);
  EXPECT_EQ(end_of({Status::ok}, 0, ExitCode::missed_target).code, 1);
}

}  // namespace
}  // namespace gradmeter::bench
