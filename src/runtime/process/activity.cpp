#include "runtime/process/activity.hpp"

#include "core/format.hpp"

namespace gradmeter::runtime {

namespace {
std::string rounds_text(const WaitInfo& wait) {
  if (wait.round < 0) return {};
  if (wait.rounds < 0) return fmt::format(", round {}", wait.round + 1);
  return fmt::format(", round {} of {}", wait.round + 1, wait.rounds);
}

std::string wait_text(int rank, const WaitInfo& wait) {
  if (wait.peer < 0) return fmt::format("rank {} waits in {}{}", rank, wait.operation, rounds_text(wait));
  return fmt::format("rank {} waits for rank {}: {}{}", rank, wait.peer, wait.operation, rounds_text(wait));
}
}  // namespace

ActivitySnapshot Activity::doing() const noexcept {
  return {.wait = {.operation = operation_.load(std::memory_order_relaxed),
                   .peer = peer_.load(std::memory_order_relaxed),
                   .round = round_.load(std::memory_order_relaxed),
                   .rounds = rounds_.load(std::memory_order_relaxed)},
          .computing = computing_.load(std::memory_order_relaxed)};
}

std::string describe(int rank, const ActivitySnapshot& doing) {
  if (doing.wait.operation) return wait_text(rank, doing.wait);
  if (doing.computing) return fmt::format("rank {} computes {}", rank, doing.computing);
  return fmt::format("rank {} is in no exchange and no computation", rank);
}

std::string describe_hang(int rank, const ActivitySnapshot& doing, core::Seconds silent) {
  if (doing.wait.operation) {
    // The waiters all print; a rank that is stopped, lost or busy with something else does not.
    return fmt::format("{}, for {:.3g} s; the rank that prints no such line is the culprit",
                       wait_text(rank, doing.wait), silent.value);
  }
  if (doing.computing) {
    return fmt::format("rank {} has been computing {} for {:.3g} s; if that is right, raise --timeout", rank,
                       doing.computing, silent.value);
  }
  return fmt::format(
      "rank {} has been in no exchange and no computation for {:.3g} s; if that is right, raise --timeout", rank,
      silent.value);
}

}  // namespace gradmeter::runtime
