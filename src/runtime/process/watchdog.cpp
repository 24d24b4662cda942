#include "runtime/process/watchdog.hpp"

#include <algorithm>
#include <chrono>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/descriptor.hpp"
#include "runtime/process/signals.hpp"

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
  return {.print = [](std::string_view line) { write_stderr_line(line); },
          .exit = [](int code) { end_at_once(code, "a rank stood still for --timeout"); }};
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

void Watchdog::watch(const Activity& activity, int rank, core::Seconds timeout) {
  if (timeout.value <= 0) return;
  const std::lock_guard lock(mutex_);
  const core::Seconds period = poll_period(timeout);
  boards_.push_back({&activity, rank, StallDetector(timeout, period), period});
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  wake_.notify_one();
}

void Watchdog::forget(const Activity& activity) {
  const std::lock_guard lock(mutex_);
  std::erase_if(boards_, [&](const Board& b) { return b.activity == &activity; });
}

/// One look at every board; `mutex_` is held.
void Watchdog::look(core::Seconds passed) {
  const bool any_told = std::ranges::any_of(boards_, &Board::told);
  since_told_ = any_told ? since_told_ + passed : core::Seconds{};
  core::Seconds slowest_period;
  for (Board& b : boards_) {
    slowest_period = std::max(slowest_period, b.period);
    if (b.told || !b.stall_detector.check(b.activity->beats(), b.activity->paused(), passed)) continue;
    b.told = true;
    ending_.print("gradmeter: " + describe_hang(b.rank, b.activity->doing(), b.stall_detector.silent()));
  }
  // Another process's look may come a period later than ours: let it print before mpirun ends everybody.
  if (!any_told || since_told_ < ending_.grace + slowest_period) return;
  ending_.exit(static_cast<int>(core::ExitCode::backend));
  stop_ = true;
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  auto last = Clock::now();
  while (!stop_) {
    core::Seconds period{1.0};
    for (const Board& b : boards_) period = std::min(period, b.period);
    const std::size_t watched = boards_.size();
    const auto until = last + std::chrono::duration_cast<Clock::duration>(DoubleSeconds(period.value));
    if (wake_.wait_until(lock, until, [&] { return stop_ || boards_.size() > watched; })) continue;
    const auto now = Clock::now();
    look(core::Seconds{DoubleSeconds(now - last).count()});
    last = now;
  }
}

}  // namespace gradmeter::runtime
