// SPDX-License-Identifier: Apache-2.0
// Runs an operation to its end, or says what it waits for.
#pragma once
#include <algorithm>
#include <stdexcept>

#include "core/format.hpp"
#include "runtime/clock.hpp"
#include "runtime/threads/backoff.hpp"

namespace gradmeter::test {

/// An operation's `advance` until it is done. Errors: std::runtime_error when it has waited for a minute, so that a
/// test fails with the reason, not by its time limit.
template <class Operation>
void run_to_end(Operation& op, runtime::SpinPolicy spin_policy = {.spins = 20, .yields = 0}) {
  constexpr double most_s = 60;
  runtime::Backoff backoff(spin_policy);
  double waited_s = 0, last = runtime::host_clock();
  while (!op.advance()) {
    backoff.wait();
    const double now = runtime::host_clock();
    waited_s += std::min(now - last, 0.1);  // a process that was stopped has not waited
    last = now;
    if (waited_s < most_s) continue;
    if constexpr (requires { op.waiting(); }) {
      const auto w = op.waiting();
      throw std::runtime_error(fmt::format("not complete after {} s: it waits for {} in round {} of {}", most_s,
                                           w.peer < 0 ? "its own work" : fmt::format("rank {}", w.peer), w.round,
                                           w.rounds));
    }
    throw std::runtime_error(fmt::format("not complete after {} s", most_s));
  }
}

}  // namespace gradmeter::test
