// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/signals.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::runtime {

namespace {
/// Two SIGINT within this time come from one press of a key: timeout(1), for example, signals its child and then its
/// whole group.
constexpr auto same_press = std::chrono::milliseconds(100);
/// Time for mpirun to read the last line, since it drops what it has not read when a rank is gone. Without this pause
/// 12 of 40 last lines were lost, with it none.
constexpr auto reading_time = std::chrono::milliseconds(50);

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

constexpr std::array warnings{SIGUSR1, SIGUSR2, SIGXCPU};

sigset_t signals_to_watch() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGXFSZ, SIGUSR1, SIGUSR2, SIGXCPU}) {
    // Leaves ignored signals out: the kernel queues a blocked signal even if it is ignored, which would undo nohup.
    if (!is_ignored(signal)) sigaddset(&set, signal);
  }
  return set;
}

/// Blocks signals in this thread, and restores the mask at the end of the scope unless `keep` was called.
class Blocked {
 public:
  Blocked(const sigset_t& set, sigset_t& before) : before_(before) {
    const int error = pthread_sigmask(SIG_BLOCK, &set, &before);
    if (error != 0) throw core::BackendError("libc", "pthread_sigmask", std::strerror(error));
  }
  ~Blocked() {
    if (!kept_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;
  void keep() { kept_ = true; }

 private:
  const sigset_t& before_;
  bool kept_ = false;
};
}  // namespace

SignalWatch::SignalWatch(std::chrono::milliseconds grace) : grace_(grace), watched_(signals_to_watch()) {
  Blocked blocked(watched_, before_);
  signals_ = checked_descriptor(::signalfd(-1, &watched_, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd");
  stop_ = checked_descriptor(::eventfd(0, EFD_CLOEXEC), "eventfd");
  thread_ = std::thread([this] { watch(); });
  blocked.keep();
}

SignalWatch::~SignalWatch() {
  const std::uint64_t one = 1;
  // The write fails only if other code has closed the descriptor; there is then no thread to wake.
  while (::write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalWatch::describe_with(const void* rank, std::function<std::string()> describe) {
  const std::lock_guard lock(describe_mutex_);
  std::erase_if(descriptions_, [rank](const auto& d) { return d.first == rank; });
  if (describe) descriptions_.emplace_back(rank, std::move(describe));
}

void SignalWatch::watch() {
  Clock::time_point first{}, deadline = Clock::time_point::max();
  for (;;) {
    const Wakeup event = wait(deadline);
    if (event == Wakeup::stop) return;
    if (event == Wakeup::deadline) end(first_signal(), "");
    const int signal = take_signal();
    if (signal == 0 || signal == SIGXFSZ) continue;
    if (std::ranges::find(warnings, signal) != warnings.end()) {
      int no_warning = 0;
      warning_.compare_exchange_strong(no_warning, signal, std::memory_order_relaxed);
      continue;
    }
    const auto now = Clock::now();
    if (first_signal() == 0) {
      first = now;
      deadline = now + grace_;
      pending_.store(signal, std::memory_order_relaxed);
    } else if (signal == SIGINT && now - first > same_press) {
      end(signal, " again");
    }
  }
}

SignalWatch::Wakeup SignalWatch::wait(Clock::time_point deadline) const {
  for (;;) {
    int timeout_ms = -1;
    if (deadline != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (left <= 0) return Wakeup::deadline;
      timeout_ms = static_cast<int>(std::min<std::int64_t>(left, 60'000));
    }
    std::array<pollfd, 2> polled{pollfd{stop_.get(), POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0}};
    if (::poll(polled.data(), polled.size(), timeout_ms) <= 0) continue;  // timed out or interrupted: look again
    if (polled[0].revents != 0) return Wakeup::stop;
    if (polled[1].revents != 0) return Wakeup::signal;
  }
}

int SignalWatch::take_signal() const {
  signalfd_siginfo info{};
  const ssize_t got = ::read(signals_.get(), &info, sizeof info);
  return got == static_cast<ssize_t>(sizeof info) ? static_cast<int>(info.ssi_signo) : 0;
}

void SignalWatch::end(int signal, const char* why) {
  std::string doing;
  try {
    const std::lock_guard lock(describe_mutex_);
    for (const auto& [rank, describe] : descriptions_) doing += (doing.empty() ? "" : "; ") + describe();
  } catch (const std::exception&) {
    doing.clear();  // ending the process matters more than saying what it did
  }
  const char* name = ::sigabbrev_np(signal);
  const std::string ended = fmt::format("ended by SIG{}{}", name ? name : "?", why);
  write_stderr_line(fmt::format("gradmeter: {}{}{}", ended, doing.empty() ? "" : ": ", doing));
  std::this_thread::sleep_for(reading_time);
  end_at_once(core::interrupted_exit_code(signal), ended);
}

namespace {
/// Never destroyed: a thread may end the process while its statics are destroyed.
struct EndHandler {
  std::mutex mutex;
  std::function<void(int, const std::string&)> run;
};
EndHandler& end_handler() {
  static auto* const handler = new EndHandler;
  return *handler;
}
}  // namespace

void before_sudden_end(std::function<void(int code, const std::string& why)> handler) {
  const std::lock_guard lock(end_handler().mutex);
  end_handler().run = std::move(handler);
}

void end_at_once(int code, const std::string& why) {
  {
    const std::lock_guard lock(end_handler().mutex);
    if (const auto run = std::exchange(end_handler().run, {})) run(code, why);
  }
  ::_exit(code);
}

}  // namespace gradmeter::runtime
