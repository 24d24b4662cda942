// SPDX-License-Identifier: Apache-2.0
// Runs a test's body under several orders of a device's work.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#ifdef GRADMETER_CUDA_EMULATED
#include "support/cuda_emulator/emulator.hpp"
#endif

namespace gradmeter::test {

#ifdef GRADMETER_CUDA_EMULATED
/// Seed 0 runs work as late as dependencies allow, others in a random order. What the emulator reports fails the test:
/// hangs, barriers that not all threads reach, warp operations with wrong masks. Seeds: as many as `usual`, or
/// GRADMETER_DEVICE_SEEDS: "20" for that many, "5-19" for these.
template <int usual = 3, class Body>
void each_device_seed(Body body) {
  const char* const wanted = std::getenv("GRADMETER_DEVICE_SEEDS");
  const char* const dash = wanted ? std::strchr(wanted, '-') : nullptr;
  const int begin = dash ? std::atoi(wanted) : 0;
  const int end = dash ? std::atoi(dash + 1) + 1 : wanted ? std::atoi(wanted) : usual;
  for (int seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    cuda_emulator::set_seed(static_cast<std::uint64_t>(seed));
    body();
    for (const std::string& report : cuda_emulator::take_reports()) ADD_FAILURE() << report;
  }
}
#else
/// A real device has its own order.
template <int usual = 3, class Body>
void each_device_seed(Body body) {
  body();
}
#endif

}  // namespace gradmeter::test
