// SPDX-License-Identifier: Apache-2.0
// Machines for tests.
#pragma once
#include "core/machine.hpp"

namespace gradmeter::test {

/// The same link between all ranks, and sums at this rate; else as `m`.
inline core::Machine linked(double latency_s, double bytes_per_s, double reduce_bytes_per_s, core::Machine m = {}) {
  m.within_node = {.latency_s = latency_s, .bandwidth = {{.bytes_per_s = bytes_per_s}}};
  m.reduce_bytes_per_s = reduce_bytes_per_s;
  return m;
}

}  // namespace gradmeter::test
