// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/progress.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>

namespace gradmeter::runtime {
namespace {

using namespace std::chrono_literals;

std::string line(std::size_t done, std::optional<double> left_s, std::string_view doing, std::size_t columns = 80) {
  ProgressState state{.what = "points", .done = done, .total = 24, .now_doing = doing};
  if (left_s) state.left = core::Seconds{*left_s};
  return progress_line(state, columns);
}

TEST(ProgressLine, SaysHowFarHowLongAndWhat) {
  EXPECT_EQ(line(12, 70, "sync ring 4 ranks"), "12/24 points · 01:10 left · sync ring 4 ranks");
}

TEST(ProgressLine, WhatIsLeftMayBeUnknown) {
  EXPECT_EQ(line(0, {}, "sync ring"), "0/24 points · sync ring");
  EXPECT_EQ(line(24, 0, ""), "24/24 points · 00:00 left");
}

TEST(ProgressLine, IsCutBeforeTheLastColumn) {
  EXPECT_EQ(line(12, 70, "sync ring 4 ranks", 20), "12/24 points · 01:…");
  EXPECT_EQ(line(12, 70, "x", 2), "…");
  EXPECT_EQ(line(12, 70, "x", 1), "");
  EXPECT_EQ(line(12, 70, "x", 0), "");
  const std::string whole = "12/24 points · 01:10 left · x";  // 29 columns, two of them with two bytes
  EXPECT_EQ(line(12, 70, "x", 30), whole);
  EXPECT_NE(line(12, 70, "x", 29), whole);
}

TEST(ProgressLine, AUsersNameCannotDriveTheTerminal) {
  EXPECT_EQ(line(0, {}, "a\033[2Jb\nc"), "0/24 points · a\uFFFD[2Jb c");
}

class Terminal {
 public:
  Terminal() {
    int master = -1, slave = -1;
    winsize size{.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
    if (::openpty(&master, &slave, nullptr, nullptr, &size) != 0) throw std::runtime_error("no pseudo terminal");
    person_ = Descriptor(master);
    program_ = Descriptor(slave);
  }
  int descriptor() const { return program_.get(); }
  /// What was drawn so far.
  std::string shown(int patience_ms = 0) const {
    std::string text;
    pollfd ready{person_.get(), POLLIN, 0};
    while (::poll(&ready, 1, text.empty() ? patience_ms : 0) > 0 && (ready.revents & POLLIN)) {
      std::array<char, 512> part{};
      const ssize_t got = ::read(person_.get(), part.data(), part.size());
      if (got <= 0) break;
      text.append(part.data(), static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  Descriptor person_, program_;
};

TEST(Progress, DrawsOverItsOwnLineAndClearsIt) {
  const Terminal terminal;
  Progress progress("points", 24, true, terminal.descriptor());
  EXPECT_TRUE(progress.has_terminal());
  progress.update(0, {}, "a name that is too long for these forty columns");
  EXPECT_EQ(terminal.shown(), "\r\033[K0/24 points · a name that is too long …");
  progress.finish();
  EXPECT_EQ(terminal.shown(), "\r\033[K");
  progress.update(1, {}, "later");
  EXPECT_EQ(terminal.shown(), "");
}

TEST(Progress, DrawsTenTimesASecondAtMost) {
  const Terminal terminal;
  Progress progress("points", 24, true, terminal.descriptor());
  for (std::size_t i = 0; i < 50; ++i) progress.update(0, {}, "first");
  EXPECT_EQ(terminal.shown(), "\r\033[K0/24 points · first");
  std::this_thread::sleep_for(110ms);
  progress.update(0, {}, "second");
  EXPECT_EQ(terminal.shown(), "\r\033[K0/24 points · second");
}

TEST(Progress, AfterClearingTheLineStaysFreeForAMoment) {
  const Terminal terminal;
  Progress progress("points", 24, true, terminal.descriptor());
  progress.clear();
  EXPECT_EQ(terminal.shown(), "") << "nothing drawn, nothing to clear";
  progress.update(0, {}, "a");
  progress.clear();
  progress.update(0, {}, "b");
  EXPECT_EQ(terminal.shown(), "\r\033[K0/24 points · a\r\033[K");
}

TEST(Progress, IsSilentWhereNobodyLooks) {
  const Terminal terminal;
  Progress disabled("points", 24, false, terminal.descriptor());
  disabled.update(0, {}, "a");
  disabled.finish();
  EXPECT_EQ(terminal.shown(), "");
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Descriptor out(ends[0]), in(ends[1]);
  ASSERT_EQ(::fcntl(out.get(), F_SETFL, O_NONBLOCK), 0);
  Progress piped("points", 24, true, in.get());
  EXPECT_FALSE(piped.has_terminal());
  piped.update(0, {}, "a");
  piped.finish();
  char byte = 0;
  EXPECT_EQ(::read(out.get(), &byte, 1), -1);
}

TEST(Progress, ATerminalThatGoesAwayEndsIt) {
  auto terminal = std::make_unique<Terminal>();
  Progress progress("points", 24, true, terminal->descriptor());
  terminal.reset();
  progress.update(0, {}, "a");
  EXPECT_FALSE(progress.has_terminal());
}

/// mpirun's child has a pipe for standard error; the terminal is its parent's.
int rank_under_a_launcher(const Terminal& terminal, bool launched) {
  const pid_t launcher = ::fork();
  if (launcher != 0) {
    int status = 0;
    return ::waitpid(launcher, &status, 0) == launcher && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  if (::dup2(terminal.descriptor(), STDERR_FILENO) < 0) ::_exit(10);
  const pid_t rank = ::fork();
  if (rank != 0) {
    int status = 0;
    ::_exit(::waitpid(rank, &status, 0) == rank && WIFEXITED(status) ? WEXITSTATUS(status) : 11);
  }
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0 || ::dup2(ends[1], STDERR_FILENO) < 0) ::_exit(12);
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_STEP_ID"}) ::unsetenv(name);
  if (launched) {
    ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  }
  Progress progress("points", 24, true);
  progress.update(3, {}, "under mpirun");
  ::_exit(progress.has_terminal() ? 1 : 0);
}

TEST(Progress, UnderMpirunTheTerminalIsMpirunsOwn) {
  const Terminal terminal;
  EXPECT_EQ(rank_under_a_launcher(terminal, true), 1);
  EXPECT_EQ(terminal.shown(200), "\r\033[K3/24 points · under mpirun");
  EXPECT_EQ(rank_under_a_launcher(terminal, false), 0) << "a pipe of the user's own is no terminal";
  EXPECT_EQ(terminal.shown(), "");
}

}  // namespace
}  // namespace gradmeter::runtime
