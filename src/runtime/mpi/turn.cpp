#include "runtime/mpi/turn.hpp"

#include "runtime/time/backoff.hpp"

namespace gradmeter::runtime {

// A thread that polls takes turn after turn: with a mutex, which is not fair, the other one could wait for ever.
void MpiTurn::wait() const {
  Backoff backoff({.spins = 200, .yields = 0});
  while (serving_.load(std::memory_order_acquire) != ticket_) backoff.wait();
}

}  // namespace gradmeter::runtime
