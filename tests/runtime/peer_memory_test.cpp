// SPDX-License-Identifier: Apache-2.0
// Reading and writing another process: a child that waits while its memory is used.
#include "runtime/transport/peer_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "runtime/threads/thread_group.hpp"

namespace gradmeter::runtime {
namespace {

/// A child with a copy of this process's memory, until `end`.
class Child {
 public:
  explicit Child(const std::function<int()>& at_end) {
    if (::pipe(pipe_.data()) != 0) return;
    process_ = ::fork();
    if (process_ == 0) {
      ::close(pipe_[1]);
      char byte = 0;
      const bool told = ::read(pipe_[0], &byte, 1) >= 0;
      ::_exit(told ? at_end() : 99);
    }
    ::close(pipe_[0]);
  }
  int end() {
    ::close(pipe_[1]);
    int status = 0;
    ::waitpid(process_, &status, 0);
    return WEXITSTATUS(status);
  }
  pid_t process() const { return process_; }

 private:
  std::array<int, 2> pipe_{};
  pid_t process_ = -1;
};

TEST(PeerMemory, ReadsAndWritesWhatTheOtherProcessHas) {
  std::vector<int> values(100000);
  std::iota(values.begin(), values.end(), 0);
  Child child([&] { return values[0] == 7 && values[99999] == -8 && values[50000] == 50000 ? 42 : 1; });
  ASSERT_GT(child.process(), 0);
  const PeerMemory memory(child.process());
  EXPECT_FALSE(memory.is_here());
  const std::vector<int> expected = values;
  values.assign(values.size(), -1);  // this process's own, not the child's
  std::vector<int> seen(values.size());
  const auto* theirs = reinterpret_cast<const std::byte*>(values.data());
  try {
    memory.read(theirs, std::as_writable_bytes(std::span(seen)));
  } catch (const core::BackendError& e) {
    child.end();
    GTEST_SKIP() << "this kernel lets no process read another: " << e.what();
  }
  EXPECT_EQ(seen, expected);
  const std::array first{7}, last{-8};
  memory.write(std::as_bytes(std::span(first)), reinterpret_cast<std::byte*>(&values[0]));
  memory.write(std::as_bytes(std::span(last)), reinterpret_cast<std::byte*>(&values[99999]));
  EXPECT_EQ(child.end(), 42) << "the child has not seen what was written";
  EXPECT_EQ(values[0], -1);
}

TEST(PeerMemory, SaysWhyItCannot) {
  Child child([] { return 0; });
  ASSERT_GT(child.process(), 0);
  std::array<std::byte, 8> some{};
  // The page behind the first is not mapped: the kernel moves a part, and then says so.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* const mapped =
      static_cast<std::byte*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(mapped, MAP_FAILED);
  ASSERT_EQ(::munmap(mapped + page, page), 0);
  std::vector<std::byte> both(2 * page);
  EXPECT_THROW(PeerMemory(::getpid()).read(mapped, both), core::BackendError);
  ::munmap(mapped, page);
  child.end();
  EXPECT_THROW(PeerMemory(child.process()).read(some.data(), some), core::BackendError) << "the process has ended";
  EXPECT_THROW(PeerMemory(child.process()).write(some, some.data()), core::BackendError);
}

TEST(PeerMemory, OfThreadsIsHere) {
  run_thread_ranks(3, [](const Communicator& c) {
    const auto memory = reach_peer_memory(c);
    ASSERT_EQ(memory.size(), 3u);
    for (const auto& m : memory) EXPECT_TRUE(m.is_here());
  });
}

}  // namespace
}  // namespace gradmeter::runtime
