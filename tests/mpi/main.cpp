// GoogleTest on real ranks: every rank runs every test, failures are printed with their rank, and the program fails
// when any rank failed. A rank that throws ends the job: its peers would wait for it.
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>
#include <string>

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

bool run_all(const Communicator& world, FailurePrinter* printer) {
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(printer);  // which owns it now
  GTEST_FLAG_SET(catch_exceptions, false);
  const bool failed = world.any(RUN_ALL_TESTS() != 0);
  if (world.rank() == 0) {
    std::printf("%d tests on %d ranks: %s\n", testing::UnitTest::GetInstance()->test_to_run_count(), world.size(),
                failed ? "FAILED" : "passed");
  }
  return !failed;
}

}  // namespace

int main(int argc, char** argv) {
  const gradmeter::runtime::MpiSession session(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  const auto world = gradmeter::runtime::MpiSession::world();
  auto* printer = new FailurePrinter(world.rank());
  try {
    return run_all(world, printer) ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d, %s: %s\n", world.rank(), printer->test().c_str(), e.what());
    gradmeter::runtime::MpiSession::abort(3);
  }
}
