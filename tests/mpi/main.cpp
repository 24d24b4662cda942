// SPDX-License-Identifier: Apache-2.0
// GoogleTest on real ranks: every rank runs every test, failures are printed with their rank, and the program fails
// when any rank failed. A rank that throws ends the job: its peers would wait for it.
// Usage: PROGRAM [CHECK] [GoogleTest's flags]; a CHECK stands for the tests of CHECK_check.cpp, else all are run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "core/format.hpp"
#include "runtime/communicator.hpp"
#include "runtime/mpi/session.hpp"

namespace {

using gradmeter::runtime::Communicator;

class FailurePrinter final : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  void OnTestStart(const testing::TestInfo& info) override {
    test_ = std::string(info.test_suite_name()) + "." + info.name();
  }
  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (!part.failed()) return;
    std::fprintf(stderr, "rank %d, %s\n%s:%d: %s\n", rank_, test_.c_str(), part.file_name() ? part.file_name() : "?",
                 part.line_number(), part.message());
  }
  const std::string& test() const { return test_; }

 private:
  int rank_;
  std::string test_ = "no test";
};

/// Of all tests only those of CHECK_check.cpp, for each of `checks`: suites of other files are taken out of
/// GoogleTest's filter.
void take_only(const std::vector<std::string_view>& checks) {
  const auto& unit = *testing::UnitTest::GetInstance();
  std::string others;
  for (int i = 0; i < unit.total_test_suite_count(); ++i) {
    const auto& suite = *unit.GetTestSuite(i);
    const std::string_view file = suite.GetTestInfo(0)->file();
    const std::string_view name = file.substr(file.rfind('/') + 1);
    const bool taken =
        std::ranges::any_of(checks, [&](auto check) { return name == fmt::format("{}_check.cpp", check); });
    if (!taken) others += fmt::format("{}.*:", suite.name());
  }
  GTEST_FLAG_SET(filter, GTEST_FLAG_GET(filter) + "-" + others);
}

bool run_all(const Communicator& world, FailurePrinter* printer) {
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(printer);  // which owns it now
  GTEST_FLAG_SET(catch_exceptions, false);
  const bool failed = world.any(RUN_ALL_TESTS() != 0) || testing::UnitTest::GetInstance()->test_to_run_count() == 0;
  if (world.rank() == 0) {
    std::printf("%d tests on %d ranks: %s\n", testing::UnitTest::GetInstance()->test_to_run_count(), world.size(),
                failed ? "FAILED" : "passed");
  }
  return !failed;
}

}  // namespace

int main(int argc, char** argv) {
  const gradmeter::runtime::MpiSession session(argc, argv);
  testing::InitGoogleTest(&argc, argv);  // it takes its flags out
  if (argc > 1) take_only({argv + 1, argv + argc});
  const auto world = gradmeter::runtime::MpiSession::world();
  auto* printer = new FailurePrinter(world.rank());
  try {
    return run_all(world, printer) ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d, %s: %s\n", world.rank(), printer->test().c_str(), e.what());
    gradmeter::runtime::MpiSession::abort(3);
  }
}
