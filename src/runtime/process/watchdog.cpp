// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/watchdog.hpp"

#include <algorithm>
#include <chrono>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/handle.hpp"
#include "runtime/process/signals.hpp"

namespace gradmeter::runtime {
namespace {
std::string rounds_text(const ActivitySnapshot& wait) {
  if (wait.round < 0) return {};
  if (wait.rounds < 0) return fmt::format(", round {}", wait.round + 1);
  return fmt::format(", round {} of {}", wait.round + 1, wait.rounds);
}

std::string wait_text(int rank, const ActivitySnapshot& wait) {
  if (wait.peer < 0) return fmt::format("rank {} waits in {}{}", rank, wait.operation, rounds_text(wait));
  return fmt::format("rank {} waits for rank {}: {}{}", rank, wait.peer, wait.operation, rounds_text(wait));
}
}  // namespace

ActivitySnapshot Activity::doing() const noexcept {
  return {.operation = operation_.load(std::memory_order_relaxed),
          .peer = peer_.load(std::memory_order_relaxed),
          .round = round_.load(std::memory_order_relaxed),
          .rounds = rounds_.load(std::memory_order_relaxed),
          .computing = computing_.load(std::memory_order_relaxed)};
}

std::string describe(int rank, const ActivitySnapshot& doing) {
  if (doing.operation) return wait_text(rank, doing);
  if (doing.computing) return fmt::format("rank {} computes {}", rank, doing.computing);
  return fmt::format("rank {} is in no exchange and no computation", rank);
}

std::string describe_hang(int rank, const ActivitySnapshot& doing, core::Seconds silent) {
  if (doing.operation) {
    // All ranks that wait print this line; a rank that is stopped, lost or busy with something else does not.
    return fmt::format("{}, for {:.3g} s; the rank that prints no such line is the culprit", wait_text(rank, doing),
                       silent.value);
  }
  if (doing.computing) {
    return fmt::format("rank {} has been computing {} for {:.3g} s; if that is right, raise --timeout", rank,
                       doing.computing, silent.value);
  }
  return fmt::format(
      "rank {} has been in no exchange and no computation for {:.3g} s; if that is right, raise --timeout", rank,
      silent.value);
}

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
  watched_ranks_.push_back({&activity, rank, StallDetector(timeout, period), period});
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  wake_.notify_one();
}

void Watchdog::forget(const Activity& activity) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_ranks_, [&](const WatchedRank& r) { return r.activity == &activity; });
}

/// Looks once at every watched rank. The caller holds `mutex_`.
void Watchdog::look(core::Seconds passed) {
  const bool any_printed = std::ranges::any_of(watched_ranks_, &WatchedRank::has_printed);
  since_printed_ = any_printed ? since_printed_ + passed : core::Seconds{};
  core::Seconds slowest_period;
  for (WatchedRank& r : watched_ranks_) {
    slowest_period = std::max(slowest_period, r.period);
    if (r.has_printed || !r.stall_detector.check(r.activity->beats(), r.activity->paused(), passed)) continue;
    r.has_printed = true;
    ending_.print("gradmeter: " + describe_hang(r.rank, r.activity->doing(), r.stall_detector.silent()));
  }
  // The watchdog of another process may look a period later; it must print before mpirun ends all ranks.
  if (!any_printed || since_printed_ < ending_.grace + slowest_period) return;
  ending_.exit(static_cast<int>(core::ExitCode::backend));
  stop_ = true;
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  auto last = Clock::now();
  while (!stop_) {
    core::Seconds period{1.0};
    for (const WatchedRank& r : watched_ranks_) period = std::min(period, r.period);
    const std::size_t watched = watched_ranks_.size();
    const auto until = last + std::chrono::duration_cast<Clock::duration>(DoubleSeconds(period.value));
    if (wake_.wait_until(lock, until, [&] { return stop_ || watched_ranks_.size() > watched; })) continue;
    const auto now = Clock::now();
    look(core::Seconds{DoubleSeconds(now - last).count()});
    last = now;
  }
}

}  // namespace gradmeter::runtime
