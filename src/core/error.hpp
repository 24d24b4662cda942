// SPDX-License-Identifier: Apache-2.0
// All errors that end gradmeter, and the exit code of each.
#pragma once
#include <source_location>
#include <stdexcept>
#include <string>

namespace gradmeter::core {

enum class ExitCode : int { done = 0, missed_target = 1, usage = 2, backend = 3, wrong_result = 4, lost_gpu = 5 };

/// 128 + signal number, as shells report it: 130 after SIGINT, 143 after SIGTERM.
constexpr int interrupted_exit_code(int signal) { return 128 + signal; }

/// The user's input is wrong. The message is one line: what is wrong, and what would be right.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A library or system call failed.
class BackendError : public std::runtime_error {
 public:
  BackendError(std::string library, std::string call, std::string reason,
               std::source_location where = std::source_location::current());
  const std::string& library() const { return library_; }

 private:
  std::string library_;
};

/// A kernel or a library has failed on a GPU, and now every call to the GPU fails, so no further point can be measured
/// there. The message is one line that says what the GPU was doing.
class LostGpu : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// For destructors, which cannot throw: reports that a resource could not be released, perhaps because an earlier
/// operation failed. The first report in a process prints a line on stderr and sets `has_failed_release`. Does nothing
/// while an exception propagates, since the program will report that exception.
void note_failed_release(const char* library, const char* call, const char* reason) noexcept;
/// True if `note_failed_release` has reported something; the program then ends with ExitCode::backend.
bool has_failed_release() noexcept;

/// Something that the user asked for does not exist on this machine. All ranks throw the same, so that the job ends in
/// an orderly way.
class Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A measured operation gave a wrong answer, so its time is of no use.
class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// SIGINT or SIGTERM arrived and every rank agreed to stop.
class Interrupted : public std::runtime_error {
 public:
  explicit Interrupted(int signal) : std::runtime_error("interrupted"), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

}  // namespace gradmeter::core
