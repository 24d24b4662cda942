// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/progress.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "core/format.hpp"
#include "core/print.hpp"
#include "runtime/host/environment.hpp"

namespace gradmeter::runtime {

namespace {
constexpr auto shortest_gap = std::chrono::milliseconds(100);
constexpr std::size_t usual_columns = 80;
constexpr std::string_view erase = "\r\033[K";

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u; }

/// Shortens a text to `columns` characters. Each UTF-8 character counts as one column, which is right for the Latin
/// text here.
std::string cut_to(std::string_view text, std::size_t columns) {
  const auto width = static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return !is_continuation(c); }));
  if (width <= columns) return std::string(text);
  if (columns == 0) return {};
  std::size_t end = 0;
  for (std::size_t seen = 0; end < text.size(); ++end) {
    if (!is_continuation(text[end]) && seen++ == columns - 1) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

bool is_pipe(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode);
}

/// Opens the terminal on which a person sees what is written to `descriptor`; empty: there is none.
Descriptor find_terminal(int descriptor) {
  if (::isatty(descriptor)) return Descriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (!is_pipe(descriptor) || read_launcher().name.empty()) return {};
  const std::string path = fmt::format("/proc/{}/fd/2", ::getppid());
  Descriptor terminal(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
  return terminal && ::isatty(terminal.get()) ? std::move(terminal) : Descriptor();
}

std::size_t columns_of(int terminal) {
  winsize size{};
  return ::ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usual_columns;
}

/// Blocks SIGTTOU in its scope. Ranks are background jobs on mpirun's terminal, and under `stty tostop` a write would
/// stop them.
class NoStopOnOutput {
 public:
  NoStopOnOutput() {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTTOU);
    pthread_sigmask(SIG_BLOCK, &stop, &before_);
  }
  ~NoStopOnOutput() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoStopOnOutput(const NoStopOnOutput&) = delete;
  NoStopOnOutput& operator=(const NoStopOnOutput&) = delete;

 private:
  sigset_t before_{};
};
}  // namespace

std::string progress_line(const ProgressState& state, std::size_t columns) {
  std::string line = fmt::format("{}/{} {}", state.done, state.total, state.what);
  if (state.left) line += fmt::format(" · {} left", core::clock_text(*state.left));
  if (!state.now_doing.empty()) line += " · " + core::printable(state.now_doing);
  // The last column stays free: some terminals wrap when it is written.
  return cut_to(line, columns > 0 ? columns - 1 : 0);
}

Progress::Progress(std::string what, std::size_t total, bool enabled, int descriptor)
    : what_(std::move(what)), total_(total), terminal_(enabled ? find_terminal(descriptor) : Descriptor()) {}

void Progress::update(std::size_t done, std::optional<core::Seconds> left, std::string_view now_doing) {
  if (!terminal_) return;
  const auto now = Clock::now();
  if (now < next_) return;
  const ProgressState state{.what = what_, .done = done, .total = total_, .left = left, .now_doing = now_doing};
  draw(std::string(erase) + progress_line(state, columns_of(terminal_.get())));
  drawn_ = true;
  next_ = now + shortest_gap;
}

void Progress::clear() {
  if (!terminal_ || !drawn_) return;
  draw(erase);
  drawn_ = false;
  // A result that is printed now may reach the terminal later, through mpirun, so the line stays empty for a moment.
  next_ = Clock::now() + shortest_gap;
}

void Progress::finish() {
  clear();
  terminal_.reset();
}

void Progress::draw(std::string_view text) {
  const NoStopOnOutput guard;
  if (!write_all(terminal_.get(), text)) terminal_.reset();
}

}  // namespace gradmeter::runtime
