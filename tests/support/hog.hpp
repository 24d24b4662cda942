// SPDX-License-Identifier: Apache-2.0
// Another program that takes the core which the calling thread is pinned to.
#pragma once
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>

namespace gradmeter::test {

/// The calling thread on one of the CPUs that it may use, the number `which` of them (modulo their number), until the
/// end of the scope.
class Pinned {
 public:
  explicit Pinned(int which) {
    CPU_ZERO(&before_);
    if (::sched_getaffinity(0, sizeof before_, &before_) != 0) throw std::runtime_error("sched_getaffinity");
    int left = which % CPU_COUNT(&before_);
    std::size_t cpu = 0;
    while (!CPU_ISSET(cpu, &before_) || left-- > 0) ++cpu;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) throw std::runtime_error("sched_setaffinity");
  }
  ~Pinned() { ::sched_setaffinity(0, sizeof before_, &before_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t before_;
};

/// A process that computes for nothing, on the CPUs of the calling thread, until the end of the scope. It ends with the
/// thread that made it.
class Hog {
 public:
  Hog() : pid_(::fork()) {
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::getppid();
  }
  ~Hog() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;

 private:
  pid_t pid_;
};

/// Computes for so long.
inline void burn(double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds) {
  }
}

}  // namespace gradmeter::test
