#include "runtime/time/cadence.hpp"

#include <sched.h>

#include <array>

namespace gradmeter::runtime {

std::string_view name(Cadence c) {
  constexpr std::array<std::string_view, 3> names{"barrier", "none", "window"};
  return names[static_cast<std::size_t>(c)];
}

std::span<const Cadence> cadences() {
  static constexpr std::array all{Cadence::barrier, Cadence::none, Cadence::window};
  return all;
}

void Pacer::open(double window_s) {
  clock_.resynchronise();
  if (cadence_ != Cadence::window) return;
  // The first window opens after the message that says so has reached everybody.
  opens_ = communicator_.broadcast_value(clock_.model().reference(host_clock()) + 1e-3);
  window_ = communicator_.broadcast_value(window_s);
}

bool Pacer::next() {
  if (cadence_ == Cadence::none) return true;
  if (cadence_ == Cadence::barrier) return communicator_.barrier(), true;
  const double opens = clock_.model().local(opens_);
  const bool in_time = host_clock() <= opens;
  while (host_clock() < opens) sched_yield();
  opens_ += window_;
  return in_time;
}

}  // namespace gradmeter::runtime
