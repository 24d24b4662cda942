#include "runtime/mpi/turn.hpp"

#include <atomic>
#include <cstdint>

#include "runtime/time/backoff.hpp"

namespace gradmeter::runtime {
namespace {

// MPI is the process's, and so is the right to call it.
std::atomic<bool> shared{false};
alignas(64) std::atomic<std::uint32_t> next_ticket{0};
alignas(64) std::atomic<std::uint32_t> now_serving{0};

}  // namespace

void MpiTurn::share(bool by_several_threads) { shared = by_several_threads; }

// A thread that polls takes turn after turn: with a plain mutex the other one could wait for ever.
MpiTurn::MpiTurn() : taken_(shared.load(std::memory_order_relaxed)) {
  if (!taken_) return;
  const std::uint32_t mine = next_ticket.fetch_add(1, std::memory_order_relaxed);
  Backoff backoff({.spins = 200, .yields = 0});
  while (now_serving.load(std::memory_order_acquire) != mine) backoff.wait();
}

MpiTurn::~MpiTurn() {
  if (taken_) now_serving.fetch_add(1, std::memory_order_release);
}

}  // namespace gradmeter::runtime
