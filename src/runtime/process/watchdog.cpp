#include "runtime/process/watchdog.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/descriptor.hpp"

namespace gradmeter::runtime {

namespace {
using Clock = std::chrono::steady_clock;
using DoubleSeconds = std::chrono::duration<double>;
}  // namespace

bool StallDetector::check(std::uint64_t counter, bool paused, core::Seconds since_last_look) {
  if (paused || counter != counter_) {
    counter_ = counter;
    silent_ = {};
    return false;
  }
  silent_ += std::min(since_last_look, period_ * 2.0);
  return silent_ >= timeout_;
}

core::Seconds poll_period(core::Seconds timeout) { return std::min(timeout / 10.0, core::Seconds{1.0}); }

Watchdog::Ending Watchdog::usual_ending() {
  return {.print = [](std::string_view line) { write_stderr_line(line); }, .exit = [](int code) { ::_exit(code); }};
}

Watchdog::Watchdog(const Activity& activity, int rank, core::Seconds timeout, Ending ending)
    : activity_(activity), rank_(rank), timeout_(timeout), ending_(std::move(ending)) {
  if (timeout_.value > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool Watchdog::stopped_within(core::Seconds time) {
  std::unique_lock lock(mutex_);
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(DoubleSeconds(time.value));
  return wake_.wait_until(lock, until, [this] { return stop_; });
}

void Watchdog::watch() {
  const core::Seconds period = poll_period(timeout_);
  StallDetector stall_detector(timeout_, period);
  auto last = Clock::now();
  while (!stopped_within(period)) {
    const auto now = Clock::now();
    const core::Seconds passed{DoubleSeconds(now - last).count()};
    last = now;
    if (!stall_detector.check(activity_.beats(), activity_.paused(), passed)) continue;
    ending_.print("gradmeter: " + describe_hang(rank_, activity_.doing(), stall_detector.silent()));
    // Another rank's look may come a period later than ours: let it print before mpirun ends everybody.
    if (stopped_within(ending_.grace + period)) return;
    ending_.exit(static_cast<int>(core::ExitCode::backend));
    return;
  }
}

}  // namespace gradmeter::runtime
