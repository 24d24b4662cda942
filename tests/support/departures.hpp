// SPDX-License-Identifier: Apache-2.0
// Waits until all that was posted has left.
#pragma once
#include <chrono>
#include <thread>

#include "dataparallel/fabric/decorators/probe.hpp"

namespace gradmeter::test {

/// Before totals are read: on real ranks the last message is known to have left only a moment after it has arrived. In
/// virtual time there is no such moment. Gives up after five seconds; the totals are short then.
inline void await_departures(dataparallel::Probe& probe) {
  for (int i = 0; i < 5000 && !probe.idle(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace gradmeter::test
