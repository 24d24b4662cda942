// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of virtual time.
#pragma once
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dataparallel/fabric/simulation/world.hpp"
#include "support/machines.hpp"

namespace gradmeter::dataparallel::test {

/// Distinct on every rank and at every place.
inline float value_at(int rank, std::size_t i) {
  return std::sin(0.37f * static_cast<float>(i) + 1.7f * static_cast<float>(rank));
}
inline std::vector<float> values(int rank, std::size_t n) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = value_at(rank, i);
  return v;
}
inline Buffer whole(std::vector<float>& v) { return std::span<float>(v); }

/// A machine whose times are easy to work out: 1 s a FLOP, 1 s a message, 1 s a byte, sums for free.
inline SimMachine slow_machine() {
  SimMachine m;
  m.machine.flops_per_s = 1;
  m.machine.memory_bytes_per_s = 1;
  m.machine = gradmeter::test::linked(1, 1, 1e30, m.machine);
  return m;
}

/// The error that a run ends with.
inline std::string failure(int workers, const SimMachine& m, const std::function<void(Fabric&)>& body) {
  try {
    SimWorld(workers, m).run(body);
  } catch (const std::logic_error& e) {
    return e.what();
  }
  return "no failure";
}
inline std::string failure(int workers, const std::function<void(Fabric&)>& body) {
  return failure(workers, slow_machine(), body);
}

}  // namespace gradmeter::dataparallel::test
